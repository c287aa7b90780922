/* gemm_s8__neon32.c - 8-bit matmul and conv for ARMv7 with NEON, tiles of up to 4 x 8, two rows by four columns at a
 * time. A sum is a vector of four partial sums: vmull and vmlal multiply 16 k of a row by 16 k of a column and add them
 * to eight sums of 16 bits, and vpadal adds pairs of these. Two products of at most 128 x 127 fit in 16 bits, so
 * weights must be in [-127, 127]. */
#define LN_SIMD_NEON
#include "simd/simd.h"

#include "base/layout.h"
#include "fast/gemm/gemm_driver_pack.h"
#include "fast/gemm/gemm_driver_rows.h"
#include "fast/gemm/gemm_kernels.h"
#include "fast/tail/requant.inc.c"

#define MAX_ROWS 4

enum { WIDTH = 8, DEPTH = 8, COLUMNS = 4 };

/* Adds the pairs of products of 16 or 8 k. */
static inline int32x4_t add_16(int32x4_t sum, int8x16_t a, int8x8_t b0, int8x8_t b1) {
    return vpadalq_s16(sum, vmlal_s8(vmull_s8(vget_low_s8(a), b0), vget_high_s8(a), b1));
}

static inline int32x4_t add_8(int32x4_t sum, int8x8_t a, int8x8_t b) { return vpadalq_s16(sum, vmull_s8(a, b)); }

/* Returns the sums of the lanes of four vectors. */
static inline int32x4_t lanes_of(const int32x4_t v[COLUMNS]) {
    int32x2_t pair[COLUMNS];
    LN_UNROLL
    for (int j = 0; j < COLUMNS; j++) pair[j] = vpadd_s32(vget_low_s32(v[j]), vget_high_s32(v[j]));
    return vcombine_s32(vpadd_s32(pair[0], pair[1]), vpadd_s32(pair[2], pair[3]));
}

/* Computes `rows` rows, 1 or 2, of four columns. a: pointers to the rows, `step` from tap to tap. b: the columns of the
 * panel, whose steps of DEPTH k are `b_step` bytes apart. */
static inline __attribute__((always_inline)) void block(const int rows, const ln_gemm_tile *t, const void *const *a,
                                                        int32_t step, const int8_t *b, const int32_t b_step,
                                                        const int32_t *init, int32_t *c, int32_t ldc) {
    int32x4_t sum[2][COLUMNS];
    LN_UNROLL
    for (int i = 0; i < rows; i++) LN_UNROLL
    for (int j = 0; j < COLUMNS; j++) sum[i][j] = vdupq_n_s32(0);
    const int32_t kc = (int32_t)t->kc;
    for (int32_t taps = (int32_t)t->taps; taps > 0; taps--, a += step) {
        const int8_t *a0 = a[0], *a1 = a[rows - 1];
        int32_t k = kc;
        for (; k >= 2 * DEPTH; k -= 2 * DEPTH, b += 2 * b_step) {
            const int8x16_t x = vld1q_s8(a0), y = vld1q_s8(a1);
            a0 += 2 * DEPTH, a1 += 2 * DEPTH;
            LN_UNROLL
            for (int j = 0; j < COLUMNS; j++) {
                const int8x8_t b0 = vld1_s8(b + j * DEPTH), b1 = vld1_s8(b + b_step + j * DEPTH);
                sum[0][j] = add_16(sum[0][j], x, b0, b1);
                if (rows > 1) sum[1][j] = add_16(sum[1][j], y, b0, b1);
            }
        }
        if (k == 0) continue;
        const int8x8_t x = vld1_s8(a0), y = vld1_s8(a1);
        LN_UNROLL
        for (int j = 0; j < COLUMNS; j++) {
            const int8x8_t b0 = vld1_s8(b + j * DEPTH);
            sum[0][j] = add_8(sum[0][j], x, b0);
            if (rows > 1) sum[1][j] = add_8(sum[1][j], y, b0);
        }
        b += b_step;
    }
    LN_UNROLL
    for (int i = 0; i < rows; i++) vst1q_s32(c + i * ldc, vaddq_s32(lanes_of(sum[i]), vld1q_s32(init)));
}

static LN_NEVER_INLINE void block_1(const ln_gemm_tile *t, const void *const *a, int32_t step, const int8_t *b,
                                    int32_t b_step, const int32_t *init, int32_t *c) {
    block(1, t, a, step, b, b_step, init, c, 0);
}

static LN_NEVER_INLINE void block_2(const ln_gemm_tile *t, const void *const *a, int32_t step, const int8_t *b,
                                    int32_t b_step, const int32_t *init, int32_t *c, int32_t ldc) {
    block(2, t, a, step, b, b_step, init, c, ldc);
}

static void tile(const ln_gemm_tile *t, int32_t rows, int32_t width) {
    int32_t edge[MAX_ROWS * WIDTH];
    const bool whole = t->columns == width;
    int32_t *c = whole ? t->c : edge;
    const int32_t ldc = whole ? (int32_t)t->ldc : width;
    const int32_t *init = t->init;
    for (int32_t j = 0; j < width; j += COLUMNS) {
        const int8_t *b = (const int8_t *)t->b + j * DEPTH;
        int32_t i = 0;
        for (; i + 2 <= rows; i += 2) block_2(t, t->a + i, rows, b, width * DEPTH, init + j, c + i * ldc + j, ldc);
        if (i < rows) block_1(t, t->a + i, rows, b, width * DEPTH, init + j, c + i * ldc + j);
    }
    for (int32_t i = 0; t->row_sum != NULL && i < rows; i++)
        for (int32_t j = 0; j < width; j += COLUMNS) {
            int32_t *at = c + i * ldc + j;
            vst1q_s32(at, vaddq_s32(vld1q_s32(at), vdupq_n_s32(t->row_sum[i])));
        }
    if (!whole)
        ln_gemm_copy_rows(t->c, t->ldc * (int64_t)sizeof *c, edge, width * (int64_t)sizeof *c, rows,
                          t->columns * (int64_t)sizeof *c);
}

#define TILES(r)                                                                                                       \
    static void full_##r(const ln_gemm_tile *t) { tile(t, r, WIDTH); }                                                 \
    static void half_##r(const ln_gemm_tile *t) { tile(t, r, WIDTH / 2); }
LN_GEMM_ROWS_4(TILES)
#define FULL(r) [r] = full_##r,
#define HALF(r) [r] = half_##r,
static const ln_gemm_ukernel full[MAX_ROWS + 1] = {LN_GEMM_ROWS_4(FULL)};
static const ln_gemm_ukernel half[MAX_ROWS + 1] = {LN_GEMM_ROWS_4(HALF)};

static void convert(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    if (stride == 1)
        memcpy(dst, src, (size_t)n);
    else
        ln_gemm_convert_any(dst, src, stride, n, src_dtype, LINNET_I8);
}

static void row_sums(const void *const *a, int64_t taps, int64_t rows, int64_t kc, int32_t *sums) {
    for (int64_t i = 0; i < rows; i++) {
        int32x4_t four = vdupq_n_s32(0);
        sums[i] = 0;
        for (int64_t t = 0; t < taps; t++) {
            const int8_t *v = a[t * rows + i];
            int64_t k = 0;
            for (; k + 16 <= kc; k += 16) four = vpadalq_s16(four, vpaddlq_s8(vld1q_s8(v + k)));
            for (; k < kc; k++) sums[i] += v[k];
        }
        sums[i] += vaddvq_s32(four);
    }
}

static void store(const ln_requant *r, int64_t channel, const void *sums, int64_t sums_stride, int64_t rows, int64_t n,
                  void *y, int64_t y_stride) {
    for (; rows > 0; rows--, sums = (const char *)sums + sums_stride, y = (char *)y + y_stride) {
        if (r->low_at == 0 && !r->wide)
            requant_row(r, channel, sums, NULL, n, y);
        else
            ln_gemm_store_row(r, channel, sums, n, y);
    }
}

const ln_gemm_set ln_gemm_s8__neon32 = {.a_dtype = LINNET_I8,
                                        .b_dtype = LINNET_I8,
                                        .c_dtype = LINNET_I32,
                                        .rows = MAX_ROWS,
                                        .width = WIDTH,
                                        .depth = DEPTH,
                                        .whole = true,
                                        .symmetric = true,
                                        .takes = 1u << LINNET_I8,
                                        .takes_b = 1u << LINNET_I8,
                                        .full = full,
                                        .half = half,
                                        .convert = convert,
                                        .row_sums = row_sums,
                                        .store = store};
static const ln_gemm_set *const sets[] = {&ln_gemm_s8__neon32};

/* Tells whether the weights are known and none is -128. */
static bool symmetric(const ln_tensor *w) {
    if (w->dtype != LINNET_I8 || w->data == NULL || !ln_packable(w) || !ln_is_dense(w)) return false;
    const int8_t *v = w->data;
    int lowest = 0;
    for (int64_t i = 0, n = ln_count(w); i < n; i++) lowest = v[i] < lowest ? v[i] : lowest;
    return lowest > INT8_MIN;
}

LN_GEMM_KERNELS_IF(symmetric(&call->inputs[1]), s8__neon32, sets)
