/* copy.inc.c - the fast implementation of copy: memcpy for contiguous runs, transposes of tiles in registers, and a
   strided loop per element size. Compiled once per ISA level. ops/copy_plan.c makes the rectangles. */
#include "ops/copy.h"

#include "fast/tail/tile_4.inc.c"
#include "kernel/common/index.h"
#include "ops/copy_plan.h"
#include "ops/copy_rectangles.h"

/* ---- transposes of one tile: target[p][q] = source[q][p]; strides in bytes ---- */

#if defined(LN_SIMD_NEON)
static inline void LN_SIMD_NAME(tile_2)(const char *s, int64_t s_stride, char *t,
                                        int64_t t_stride) { /* 8 x 8 of 2 bytes */
    uint16x8_t r[8], u[8];
    LN_SIMD_UNROLL
    for (int k = 0; k < 8; k++) r[k] = vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)s + k * s_stride));
    LN_SIMD_UNROLL
    for (int k = 0; k < 4; k++) {
        u[2 * k] = vzip1q_u16(r[k], r[k + 4]);
        u[2 * k + 1] = vzip2q_u16(r[k], r[k + 4]);
    }
    LN_SIMD_UNROLL
    for (int k = 0; k < 4; k++) {
        r[2 * k] = vzip1q_u16(u[k], u[k + 4]);
        r[2 * k + 1] = vzip2q_u16(u[k], u[k + 4]);
    }
    LN_SIMD_UNROLL
    for (int k = 0; k < 4; k++) {
        vst1q_u8((uint8_t *)t + 2 * k * t_stride, vreinterpretq_u8_u16(vzip1q_u16(r[k], r[k + 4])));
        vst1q_u8((uint8_t *)t + (2 * k + 1) * t_stride, vreinterpretq_u8_u16(vzip2q_u16(r[k], r[k + 4])));
    }
}
static inline void LN_SIMD_NAME(tile_1)(const char *s, int64_t s_stride, char *t,
                                        int64_t t_stride) { /* 8 x 8 of 1 byte */
    uint8x8_t r[8], u[8];
    LN_SIMD_UNROLL
    for (int k = 0; k < 8; k++) r[k] = vld1_u8((const uint8_t *)s + k * s_stride);
    LN_SIMD_UNROLL
    for (int k = 0; k < 4; k++) {
        u[2 * k] = vzip1_u8(r[k], r[k + 4]);
        u[2 * k + 1] = vzip2_u8(r[k], r[k + 4]);
    }
    LN_SIMD_UNROLL
    for (int k = 0; k < 4; k++) {
        r[2 * k] = vzip1_u8(u[k], u[k + 4]);
        r[2 * k + 1] = vzip2_u8(u[k], u[k + 4]);
    }
    LN_SIMD_UNROLL
    for (int k = 0; k < 4; k++) {
        vst1_u8((uint8_t *)t + 2 * k * t_stride, vzip1_u8(r[k], r[k + 4]));
        vst1_u8((uint8_t *)t + (2 * k + 1) * t_stride, vzip2_u8(r[k], r[k + 4]));
    }
}
#else
static inline void LN_SIMD_NAME(tile_2)(const char *s, int64_t s_stride, char *t,
                                        int64_t t_stride) { /* 8 x 8 of 2 bytes */
    __m128i r[8], u[8];
    LN_SIMD_UNROLL
    for (int k = 0; k < 8; k++) r[k] = tile_row(s + k * s_stride);
    LN_SIMD_UNROLL
    for (int k = 0; k < 4; k++) {
        u[2 * k] = _mm_unpacklo_epi16(r[k], r[k + 4]);
        u[2 * k + 1] = _mm_unpackhi_epi16(r[k], r[k + 4]);
    }
    LN_SIMD_UNROLL
    for (int k = 0; k < 4; k++) {
        r[2 * k] = _mm_unpacklo_epi16(u[k], u[k + 4]);
        r[2 * k + 1] = _mm_unpackhi_epi16(u[k], u[k + 4]);
    }
    LN_SIMD_UNROLL
    for (int k = 0; k < 4; k++) {
        tile_put(t + 2 * k * t_stride, _mm_unpacklo_epi16(r[k], r[k + 4]));
        tile_put(t + (2 * k + 1) * t_stride, _mm_unpackhi_epi16(r[k], r[k + 4]));
    }
}
static inline void LN_SIMD_NAME(tile_1)(const char *s, int64_t s_stride, char *t,
                                        int64_t t_stride) { /* 8 x 8 of 1 byte */
    __m128i r[8], u[4];
    LN_SIMD_UNROLL
    for (int k = 0; k < 8; k++) r[k] = _mm_loadl_epi64((const __m128i *)(const void *)(s + k * s_stride));
    LN_SIMD_UNROLL
    for (int k = 0; k < 4; k++) /* interleaves the bytes of rows k and k + 4 */
        u[k] = _mm_unpacklo_epi8(r[k], r[k + 4]);
    LN_SIMD_UNROLL
    for (int k = 0; k < 2; k++) {
        r[2 * k] = _mm_unpacklo_epi8(u[k], u[k + 2]);
        r[2 * k + 1] = _mm_unpackhi_epi8(u[k], u[k + 2]);
    }
    LN_SIMD_UNROLL
    for (int k = 0; k < 2; k++) {
        u[2 * k] = _mm_unpacklo_epi8(r[k], r[k + 2]);
        u[2 * k + 1] = _mm_unpackhi_epi8(r[k], r[k + 2]);
    }
    LN_SIMD_UNROLL
    for (int k = 0; k < 4; k++) {
        _mm_storel_epi64((__m128i *)(void *)(t + 2 * k * t_stride), u[k]);
        _mm_storel_epi64((__m128i *)(void *)(t + (2 * k + 1) * t_stride), _mm_srli_si128(u[k], 8));
    }
}
#endif

#if defined(LN_SIMD_NEON)
/* Interleaves three planes of a picture to pixels of three adjacent values, for as many rows as fill whole vectors.
 * Returns this number of rows. */
static int64_t LN_SIMD_NAME(interleave_3)(const char *s, int64_t s_stride, char *t, int64_t rows, size_t size) {
    int64_t p = 0;
    for (; size == 1 && p + 16 <= rows; p += 16) {
        const uint8_t *from = (const uint8_t *)s + p;
        uint8x16x3_t planes;
        planes.val[0] = vld1q_u8(from);
        planes.val[1] = vld1q_u8(from + s_stride);
        planes.val[2] = vld1q_u8(from + 2 * s_stride);
        vst3q_u8((uint8_t *)t + 3 * p, planes);
    }
    for (; size == 4 && p + 4 <= rows; p += 4) {
        const uint8_t *from = (const uint8_t *)s + 4 * p;
        uint32x4x3_t planes;
        planes.val[0] = vreinterpretq_u32_u8(vld1q_u8(from));
        planes.val[1] = vreinterpretq_u32_u8(vld1q_u8(from + s_stride));
        planes.val[2] = vreinterpretq_u32_u8(vld1q_u8(from + 2 * s_stride));
        vst3q_u32((uint32_t *)(void *)(t + 12 * p), planes);
    }
    return p;
}
#else
static inline __m128 LN_SIMD_NAME(four)(const char *p) { return _mm_loadu_ps((const float *)(const void *)p); }
static inline void LN_SIMD_NAME(put_four)(char *p, __m128 v) { _mm_storeu_ps((float *)(void *)p, v); }
#ifdef LN_SIMD_AVX2
/* A result has three vectors. Entry [3 * v + p][i] is the byte of plane p that becomes byte i of vector v; -1: this
 * byte comes from another plane. */
static const int8_t LN_SIMD_NAME(order_3)[2][9][16] = {
    /* for elements of one byte, then of two bytes */
    {{0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5},
     {-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1},
     {-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1},
     {-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1},
     {5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10},
     {-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1},
     {-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1},
     {-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1},
     {10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15}},
    {{0, 1, -1, -1, -1, -1, 2, 3, -1, -1, -1, -1, 4, 5, -1, -1},
     {-1, -1, 0, 1, -1, -1, -1, -1, 2, 3, -1, -1, -1, -1, 4, 5},
     {-1, -1, -1, -1, 0, 1, -1, -1, -1, -1, 2, 3, -1, -1, -1, -1},
     {-1, -1, 6, 7, -1, -1, -1, -1, 8, 9, -1, -1, -1, -1, 10, 11},
     {-1, -1, -1, -1, 6, 7, -1, -1, -1, -1, 8, 9, -1, -1, -1, -1},
     {4, 5, -1, -1, -1, -1, 6, 7, -1, -1, -1, -1, 8, 9, -1, -1},
     {-1, -1, -1, -1, 12, 13, -1, -1, -1, -1, 14, 15, -1, -1, -1, -1},
     {10, 11, -1, -1, -1, -1, 12, 13, -1, -1, -1, -1, 14, 15, -1, -1},
     {-1, -1, 10, 11, -1, -1, -1, -1, 12, 13, -1, -1, -1, -1, 14, 15}},
};

/* Interleaves planes of elements of one or two bytes. */
static int64_t LN_SIMD_NAME(interleave_3_small)(const char *s, int64_t s_stride, char *t, int64_t rows, size_t size) {
    const int64_t step = 16 / (int64_t)size;
    __m128i order[9];
    LN_SIMD_UNROLL
    for (int k = 0; k < 9; k++) order[k] = tile_row((const char *)LN_SIMD_NAME(order_3)[size - 1][k]);
    int64_t p = 0;
    for (; p + step <= rows; p += step, s += 16, t += 48) {
        const __m128i a = tile_row(s), b = tile_row(s + s_stride), c = tile_row(s + 2 * s_stride);
        LN_SIMD_UNROLL
        for (int v = 0; v < 3; v++) {
            const __m128i ab = _mm_or_si128(_mm_shuffle_epi8(a, order[3 * v]), _mm_shuffle_epi8(b, order[3 * v + 1]));
            tile_put(t + 16 * v, _mm_or_si128(ab, _mm_shuffle_epi8(c, order[3 * v + 2])));
        }
    }
    return p;
}
#endif
/* Interleaves three planes, as above, whose elements have four bytes or, with AVX2, one or two bytes. */
static int64_t LN_SIMD_NAME(interleave_3)(const char *s, int64_t s_stride, char *t, int64_t rows, size_t size) {
    int64_t p = 0;
#ifdef LN_SIMD_AVX2
    if (size <= 2) return LN_SIMD_NAME(interleave_3_small)(s, s_stride, t, rows, size);
#endif
    for (; size == 4 && p + 4 <= rows; p += 4, s += 16, t += 48) {
        const __m128 a = LN_SIMD_NAME(four)(s), b = LN_SIMD_NAME(four)(s + s_stride),
                     c = LN_SIMD_NAME(four)(s + 2 * s_stride);
        const __m128 ab = _mm_shuffle_ps(a, b, 0x88); /* a0 a2 b0 b2 */
        const __m128 bc = _mm_shuffle_ps(b, c, 0xDD); /* b1 b3 c1 c3 */
        const __m128 ca = _mm_shuffle_ps(c, a, 0xD8); /* c0 c2 a1 a3 */
        LN_SIMD_NAME(put_four)(t, _mm_shuffle_ps(ab, ca, 0x88));
        LN_SIMD_NAME(put_four)(t + 16, _mm_shuffle_ps(bc, ab, 0xD8));
        LN_SIMD_NAME(put_four)(t + 32, _mm_shuffle_ps(ca, bc, 0xDD));
    }
    return p;
}
#endif

/* Transposes four columns of four bytes each. Returns how many rows it has done: all of them, or none. */
static int64_t LN_SIMD_NAME(interleave_4)(const char *s, int64_t s_stride, char *t, int64_t t_stride, int64_t rows) {
    int64_t p = 0;
    for (; p + 4 <= rows; p += 4) tile_4x4(s + 4 * p, s_stride, t + p * t_stride, t_stride);
    for (; p < rows; p++)
        for (int q = 0; q < 4; q++) memcpy(t + p * t_stride + 4 * q, s + q * s_stride + 4 * p, 4);
    return rows;
}

/* Computes target[p][q] = source[q][p] for p < rows, q < columns; strides are in bytes. Tiles of 16 x 16 fill whole
 * cache lines. */
static void LN_SIMD_NAME(transpose)(const char *s, int64_t s_stride, char *t, int64_t t_stride, int64_t rows,
                                    int64_t columns, size_t size) {
    int64_t done = 0;
    if (columns == 3 && t_stride == 3 * (int64_t)size) done = LN_SIMD_NAME(interleave_3)(s, s_stride, t, rows, size);
    if (columns == 4 && size == 4) done = LN_SIMD_NAME(interleave_4)(s, s_stride, t, t_stride, rows);
    s += done * (int64_t)size, t += done * t_stride, rows -= done;
    if (rows == 0) return;
    int step = size == 4 ? LN_TILE_4 : size <= 2 ? 8 : 16;
    int64_t whole_rows = size == 8 ? 0 : rows / step * step, whole_columns = columns / step * step,
            width = (int64_t)size;
    for (int64_t p0 = 0; p0 < whole_rows; p0 += 16) {
        for (int64_t q0 = 0; q0 < whole_columns; q0 += 16) {
            for (int64_t p = p0; p < ln_min(p0 + 16, whole_rows); p += step) {
                for (int64_t q = q0; q < ln_min(q0 + 16, whole_columns); q += step) {
                    const char *from = s + q * s_stride + p * width;
                    char *to = t + p * t_stride + q * width;
                    if (size == 4)
                        tile_4(from, s_stride, to, t_stride);
                    else if (size == 2)
                        LN_SIMD_NAME(tile_2)(from, s_stride, to, t_stride);
                    else
                        LN_SIMD_NAME(tile_1)(from, s_stride, to, t_stride);
                }
            }
        }
    }
    if (size == 8) {
        for (int64_t p0 = 0; p0 < rows; p0 += 8)
            for (int64_t q0 = 0; q0 < columns; q0 += 8)
                ln_copy_corner(s + q0 * s_stride + p0 * 8, s_stride, t + p0 * t_stride + q0 * 8, t_stride,
                               ln_min(8, rows - p0), ln_min(8, columns - q0), 8);
        return;
    }
    if (whole_columns < columns)
        ln_copy_corner(s + whole_columns * s_stride, s_stride, t + whole_columns * width, t_stride, whole_rows,
                       columns - whole_columns, size);
    if (whole_rows < rows)
        ln_copy_corner(s + whole_rows * width, s_stride, t + whole_rows * t_stride, t_stride, rows - whole_rows,
                       columns, size);
}

static linnet_status LN_SIMD_NAME(copy_run)(const ln_call *call, const ln_buffers *b, int phase, int64_t begin,
                                            int64_t end, int thread) {
    (void)phase;
    (void)thread;
    ln_copy_run(call, b, begin, end, LN_SIMD_NAME(transpose));
    return LINNET_OK;
}

const ln_kernel_code LN_SIMD_NAME(ln_copy_simd) = {
    .can = ln_copy_can, .cost = ln_copy_cost, .configure = ln_copy_configure, .run = LN_SIMD_NAME(copy_run)};
