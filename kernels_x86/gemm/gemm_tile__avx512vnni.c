/* gemm_tile__avx512vnni.c - stores tiles of integer sums with AVX-512, four vectors at a time, which become 64 bytes.
 * Equals ln_requant_store of kernel/common/requant.h bit by bit. */
#include "kernels_x86/gemm/gemm_tile__avx512vnni.h"
#include "kernels_x86/gemm/gemm_store__avx512vnni.h"

#include <immintrin.h>

#define TILE_INLINE static inline __attribute__((always_inline))

/* Vector j of a group of four is in row row_of(j) and begins at column column_of(j). */
TILE_INLINE int64_t row_of(const int width, int j) { return width == 32 ? j / 2 : j; }
TILE_INLINE int64_t column_of(const int width, int j) { return width == 32 ? j % 2 * 16 : 0; }
TILE_INLINE __mmask16 columns_of(int64_t left) {
    return left >= 16 ? 0xFFFF : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
}

/* Adds the zero point to four vectors of 16 integers and narrows them, with saturation, to 64 bytes in their order. */
TILE_INLINE __m512i narrow(__m512i a, __m512i b, __m512i c, __m512i d, __m512i zero) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i ab = _mm512_adds_epi16(_mm512_packs_epi32(a, b), zero);
    const __m512i cd = _mm512_adds_epi16(_mm512_packs_epi32(c, d), zero);
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(ab, cd));
}

/* Stores 64 bytes as 2 rows of 32 or 4 of 16, of which `rows` and n columns are stored. */
TILE_INLINE void store_group(const int width, __m512i v, int64_t rows, int64_t n, char *y, int64_t stride) {
    if (width == 32) {
        const __m256i first = _mm512_castsi512_si256(v), second = _mm512_extracti64x4_epi64(v, 1);
        if (n == 32) {
            _mm256_storeu_si256((__m256i *)(void *)y, first);
            if (rows > 1) _mm256_storeu_si256((__m256i *)(void *)(y + stride), second);
            return;
        }
        const __mmask32 mask = (__mmask32)(((uint64_t)1 << n) - 1);
        _mm256_mask_storeu_epi8(y, mask, first);
        if (rows > 1) _mm256_mask_storeu_epi8(y + stride, mask, second);
        return;
    }
    const __mmask16 mask = columns_of(n);
    _mm_mask_storeu_epi8(y, mask, _mm512_castsi512_si128(v));
    if (rows > 1) _mm_mask_storeu_epi8(y + stride, mask, _mm512_extracti32x4_epi32(v, 1));
    if (rows > 2) _mm_mask_storeu_epi8(y + 2 * stride, mask, _mm512_extracti32x4_epi32(v, 2));
    if (rows > 3) _mm_mask_storeu_epi8(y + 3 * stride, mask, _mm512_extracti32x4_epi32(v, 3));
}

/* Returns the sums of vector j as f32, times their scales. Rows after the last row are replaced by the last row. */
TILE_INLINE __m512 scaled(const int width, const int32_t *sums, int j, int64_t rows, const __m512 *scale) {
    const int64_t row = ln_min(row_of(width, j), rows - 1), column = column_of(width, j);
    const __m512i v = _mm512_loadu_si512(sums + row * width + column);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(v), scale[column / 16]);
}

/* Converts a tile to bytes. Only the upper limit must be applied to the floats: a float below the range of int32
 * becomes the least int32, and the later steps saturate it. */
TILE_INLINE void store_bytes(const int width, const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows,
                             int64_t n, char *y, int64_t stride) {
    const int64_t step = 64 / width;
    const __m512 most = _mm512_set1_ps((float)(r->high - r->y_zero));
    const int flip = r->output_dtype == LINNET_U8 ? 128 : 0; /* u8 is i8 with the top bit flipped */
    const __m512i zero = _mm512_set1_epi16((int16_t)(r->y_zero - flip)), sign = _mm512_set1_epi8((char)flip);
    const float *from = r->scale + channel;
    const __m512 scale[2] = {_mm512_loadu_ps(from), width == 32 ? _mm512_loadu_ps(from + 16) : _mm512_setzero_ps()};
    for (; rows > 0; rows -= step, sums += 64, y += step * stride) {
        __m512i v[4];
        LN_UNROLL
        for (int j = 0; j < 4; j++) v[j] = _mm512_cvtps_epi32(_mm512_min_ps(scaled(width, sums, j, rows, scale), most));
        store_group(width, _mm512_xor_si512(narrow(v[0], v[1], v[2], v[3], zero), sign), rows, n, y, stride);
    }
}

/* Stores f32 results. */
static void store_floats(const float *from, const int32_t *sums, int64_t rows, int64_t width, int64_t n, char *y,
                         int64_t stride) {
    for (int64_t at = 0; at < n; at += 16) {
        const __m512 scale = _mm512_loadu_ps(from + at);
        const __mmask16 mask = columns_of(n - at);
        for (int64_t i = 0; i < rows; i++)
            _mm512_mask_storeu_ps(y + i * stride + at * 4, mask,
                                  _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(sums + i * width + at)), scale));
    }
}

void ln_gemm_store_tile__avx512vnni(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows,
                                    int64_t width, int64_t n, void *y, int64_t y_stride) {
    const bool bytes = r->output_dtype == LINNET_I8 || r->output_dtype == LINNET_U8;
    if (bytes && r->mode == LN_REQUANT_FLOAT_RNE && width == 32)
        store_bytes(32, r, channel, sums, rows, n, y, y_stride);
    else if (bytes && r->mode == LN_REQUANT_FLOAT_RNE)
        store_bytes(16, r, channel, sums, rows, n, y, y_stride);
    else if (r->output_dtype == LINNET_F32)
        store_floats(r->scale + channel, sums, rows, width, n, y, y_stride);
    else
        ln_gemm_store__avx512vnni(r, channel, sums, width * (int64_t)sizeof *sums, rows, n, y, y_stride);
}

/* ---- tiles with a residual --------------------------------------------------------------------------------------- */

/* Kinds of residuals. */
enum { NONE, BYTES, FLOATS };

/* A group of four vectors of a tile, and the numbers that are added to it. The fields are copies, so the compiler knows
 * that no store changes them. */
typedef struct group {
    ln_quantized_sum s;
    const int32_t *sums;
    const char *residual;
    int64_t rows, n, stride;    /* rows and columns that are stored; stride of y in bytes */
    __m512 scale[2], low, high; /* scales and limits of the op's own result, without its zero point */
    int flip;                   /* is XORed with the bytes of the residual: 128 makes u8 to i8; 0 for i8 */
    bool whole;                 /* the group has all rows and columns */
} group;

/* Returns 16 bytes of the residual, as i8 in lanes of 32 bits. */
TILE_INLINE __m512i residual_bytes(const int width, const group *g, int j) {
    const __m128i flip = _mm_set1_epi8((char)g->flip);
    if (g->whole) {
        const char *at = g->residual + row_of(width, j) * g->stride + column_of(width, j);
        return _mm512_cvtepi8_epi32(_mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)at), flip));
    }
    const int64_t row = ln_min(row_of(width, j), g->rows - 1), column = column_of(width, j);
    const char *at = g->residual + row * g->stride + column;
    return _mm512_cvtepi8_epi32(_mm_xor_si128(_mm_maskz_loadu_epi8(columns_of(g->n - column), at), flip));
}

/* Returns vector j of the residual: f32, or i8 and u8 without the zero point. */
TILE_INLINE __m512 residual_of(const int width, const int kind, const group *g, int j) {
    if (kind == BYTES) {
        const __m512i zero = _mm512_set1_epi32(g->s.zero - g->flip);
        return _mm512_cvtepi32_ps(_mm512_sub_epi32(residual_bytes(width, g, j), zero));
    }
    const int64_t row = ln_min(row_of(width, j), g->rows - 1), column = column_of(width, j);
    return _mm512_maskz_loadu_ps(columns_of(g->n - column), g->residual + (row * g->stride + column) * 4);
}

/* Returns vector j of the result: f32, or the 8-bit integer without its zero point. */
TILE_INLINE __m512 result_of(const int width, const bool floats, const group *g, int j) {
    const __m512 v = scaled(width, g->sums, j, g->whole ? 4 : g->rows, g->scale);
    if (floats) return v;
    const __m512 rounded = _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_min_ps(_mm512_max_ps(rounded, g->low), g->high);
}

/* Returns vector j of the stored integers without the zero point, as the map computes them. The quotient equals that of
 * a division, because the product with the inverse is corrected twice (map/map_strip.inc.c). */
TILE_INLINE __m512i exact(const int width, const bool floats, const int kind, const group *g, int j) {
    const ln_quantized_sum *s = &g->s;
    __m512 v = result_of(width, floats, g, j);
    if (!floats) v = _mm512_mul_ps(v, _mm512_set1_ps(s->tile_scale));
    if (kind != NONE) {
        const __m512 other = residual_of(width, kind, g, j);
        v = _mm512_add_ps(v, kind == FLOATS ? other : _mm512_mul_ps(other, _mm512_set1_ps(s->scale)));
    }
    /* NaN becomes the lower limit. */
    v = _mm512_min_ps(_mm512_max_ps(v, _mm512_set1_ps(s->low)), _mm512_set1_ps(s->high));
    const __m512 inverse = _mm512_set1_ps(s->y_inverse), divisor = _mm512_set1_ps(s->y_scale);
    __m512 q = _mm512_mul_ps(v, inverse);
    q = _mm512_fmadd_ps(_mm512_fnmadd_ps(q, divisor, v), inverse, q);
    return _mm512_cvtps_epi32(_mm512_fmadd_ps(_mm512_fnmadd_ps(q, divisor, v), inverse, q));
}

TILE_INLINE __m512i exact_group(const int width, const bool floats, const int kind, const group *g, __m512i zero) {
    __m512i v[4];
    LN_UNROLL
    for (int j = 0; j < 4; j++) v[j] = exact(width, floats, kind, g, j);
    return narrow(v[0], v[1], v[2], v[3], zero);
}

/* Computes a group with the exact quotient. Only few groups have a number that is near a tie and need this. */
static __attribute__((noinline)) __m512i near_tie(const group *g, int64_t width, __m512i zero) {
    if (width == 32)
        return g->residual == NULL ? exact_group(32, false, NONE, g, zero) : exact_group(32, false, BYTES, g, zero);
    return g->residual == NULL ? exact_group(16, false, NONE, g, zero) : exact_group(16, false, BYTES, g, zero);
}

/* Computes 8-bit results, with or without a residual of 8 bits, by an approximation. *far becomes true if no number is
 * near a tie between two integers. Then all results are exact. */
TILE_INLINE __m512i group_of_bytes(const int width, const int kind, const group *g, __m512i zero, bool *far) {
    const ln_quantized_sum *s = &g->s;
    const __m512 factor = _mm512_set1_ps(s->factor), other = _mm512_set1_ps(s->other_factor);
    const __m512 constant = _mm512_set1_ps(s->constant); /* this constant replaces the subtraction of the zero point */
    __m512 most = _mm512_setzero_ps();
    __m512i v[4];
    LN_UNROLL
    for (int j = 0; j < 4; j++) {
        __m512 t = result_of(width, false, g, j);
        if (kind == BYTES)
            t = _mm512_fmadd_ps(t, factor,
                                _mm512_fmadd_ps(_mm512_cvtepi32_ps(residual_bytes(width, g, j)), other, constant));
        else
            t = _mm512_mul_ps(t, factor);
        most = _mm512_range_ps(most, _mm512_reduce_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), 11);
        v[j] = _mm512_cvtps_epi32(t);
    }
    *far = _mm512_cmp_ps_mask(most, _mm512_set1_ps(0.5f - s->error), _CMP_GT_OQ) == 0;
    return narrow(v[0], v[1], v[2], v[3], zero);
}

/* Stores all groups of a tile. The function changes *g instead of a copy, because copying a struct whose fields were
 * just stored waits for these stores. */
TILE_INLINE void store_sums(const int width, const bool floats, const int kind, group *g, char *y) {
    const int64_t step = 64 / width;
    const int flip = g->s.y_dtype == LINNET_U8 ? 128 : 0;
    const __m512i zero = _mm512_set1_epi16((int16_t)(g->s.y_zero - flip)), sign = _mm512_set1_epi8((char)flip);
    const __m512i low = _mm512_set1_epi8((char)(g->s.y_low - flip)),
                  high = _mm512_set1_epi8((char)(g->s.y_high - flip));
    for (; g->rows > 0; g->rows -= step, g->sums += 64, y += step * g->stride) {
        bool far = true;
        __m512i v;
        if (floats) {
            v = exact_group(width, true, kind, g, zero);
        } else if (g->n == width && g->rows >= step) {
            g->whole = true;
            v = group_of_bytes(width, kind, g, zero, &far);
        } else {
            g->whole = false;
            v = group_of_bytes(width, kind, g, zero, &far);
        }
        if (!far) {
            group slow = *g; /* a copy, so that *g itself can stay in registers */
            v = near_tie(&slow, width, zero);
        }
        v = _mm512_min_epi8(_mm512_max_epi8(v, low), high);
        store_group(width, _mm512_xor_si512(v, sign), g->rows, g->n, y, g->stride);
        if (kind != NONE) g->residual += step * g->stride * (kind == FLOATS ? 4 : 1);
    }
}

TILE_INLINE void store_sums_of(const int width, group *g, char *y) {
    if (g->s.tile == LINNET_F32 && g->s.dtype == LINNET_F32)
        store_sums(width, true, FLOATS, g, y);
    else if (g->s.tile == LINNET_F32)
        store_sums(width, true, BYTES, g, y);
    else if (g->residual != NULL)
        store_sums(width, false, BYTES, g, y);
    else
        store_sums(width, false, NONE, g, y);
}

void ln_gemm_store_sum__avx512vnni(const ln_requant *r, const ln_quantized_sum *sum, int64_t channel,
                                   const int32_t *sums, int64_t rows, int64_t width, int64_t n, const void *residual,
                                   void *y, int64_t y_stride) {
    const float *scale = r->scale + channel;
    group g; /* not cleared, because clearing would take as long as processing a group */
    g.s = *sum, g.sums = sums, g.residual = residual, g.rows = rows, g.n = n, g.stride = y_stride, g.whole = false;
    g.scale[0] = _mm512_loadu_ps(scale);
    g.scale[1] = width == 32 ? _mm512_loadu_ps(scale + 16) : _mm512_setzero_ps();
    g.low = _mm512_set1_ps((float)(r->low - r->y_zero)), g.high = _mm512_set1_ps((float)(r->high - r->y_zero));
    g.flip = sum->dtype == LINNET_U8 ? 128 : 0;
    if (width == 32)
        store_sums_of(32, &g, y);
    else
        store_sums_of(16, &g, y);
}
