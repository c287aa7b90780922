/* gemm_s16__neon.c - integer matmul and conv for every ARMv8, tiles of up to 8 x 8, 16-bit products by lane (smlal).
 * 8-bit activations are widened when they are gathered. With 16-bit activations, 32 bits hold at most 510 products of
 * 2^22. After 510 products the sums are added to 64-bit sums. */
#include "fast/gemm/gemm_driver_pack.h"
#include "fast/gemm/gemm_driver_rows.h"
#include "fast/gemm/gemm_kernels.h"
#include "kernels_arm/gemm/gemm_store__neon.h"

#include <arm_neon.h>
#include <string.h>

#define MAX_ROWS 8
#define LANES 4

enum { STEPS_UNTIL_FLUSH = 504 }; /* at most 510, and a multiple of 8 */

/* Adds the 64-bit sums of one tile: c = (first ? init : c) + part. */
static void flush(const ln_gemm_tile *t, const int32_t *part, int rows, int64_t width, bool first) {
    const int64_t *init = t->init;
    int64_t *c = t->c;
    for (int i = 0; i < rows; i++, c += t->ldc, part += width)
        for (int64_t n = 0; n < t->columns; n++) c[n] = ln_wrapped_sum(first ? init[n] : c[n], part[n]);
}

/* One step of K. A row of B is 8 (or 4) widened weights. The lane must be a constant. */
#define STEP(lane)                                                                                                     \
    do {                                                                                                               \
        int16x8_t column = vectors == 2 ? vmovl_s8(vld1_s8(b)) : load_four(b);                                         \
        b += vectors * LANES;                                                                                          \
        LN_UNROLL                                                                                                      \
        for (int i = 0; i < rows; i++) {                                                                               \
            sum[i][0] = vmlal_laneq_s16(sum[i][0], vget_low_s16(column), value[i], lane);                              \
            if (vectors == 2) sum[i][1] = vmlal_high_laneq_s16(sum[i][1], column, value[i], lane);                     \
        }                                                                                                              \
    } while (0)

static inline int16x8_t load_four(const int8_t *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(v)));
}

static inline __attribute__((always_inline)) void gemm_s16(const int rows, const int vectors, const bool wide,
                                                           const ln_gemm_tile *t) {
    const int64_t width = vectors * LANES;
    const int8_t *b = t->b;
    const void *const *a = t->a;
    int32_t part[MAX_ROWS * 2 * LANES];
    int32x4_t sum[MAX_ROWS][2];
    LN_UNROLL
    for (int i = 0; i < rows; i++) LN_UNROLL
    for (int j = 0; j < vectors; j++)
        sum[i][j] = wide ? vdupq_n_s32(0) : vld1q_s32((const int32_t *)t->init + j * LANES);
    int64_t budget = STEPS_UNTIL_FLUSH;
    bool first = true;
    for (int64_t taps = t->taps; taps > 0; taps--, a += rows) {
        const int16_t *row[MAX_ROWS];
        LN_UNROLL
        for (int i = 0; i < rows; i++) row[i] = a[i];
        for (int64_t left = t->kc; left > 0;) {
            int64_t steps = wide ? ln_min(left, budget) : left;
            left -= steps, budget -= steps;
            for (; steps >= 8; steps -= 8) {
                int16x8_t value[MAX_ROWS];
                LN_UNROLL
                for (int i = 0; i < rows; i++, row[i - 1] += 8) value[i] = vld1q_s16(row[i]);
                STEP(0);
                STEP(1);
                STEP(2);
                STEP(3);
                STEP(4);
                STEP(5);
                STEP(6);
                STEP(7);
            }
            for (; steps > 0; steps--) {
                int16x8_t value[MAX_ROWS];
                LN_UNROLL
                for (int i = 0; i < rows; i++, row[i - 1]++) value[i] = vld1q_dup_s16(row[i]);
                STEP(0);
            }
            if (wide && budget == 0) {
                LN_UNROLL
                for (int i = 0; i < rows; i++) LN_UNROLL
                for (int j = 0; j < vectors; j++) {
                    vst1q_s32(part + i * width + j * LANES, sum[i][j]);
                    sum[i][j] = vdupq_n_s32(0);
                }
                flush(t, part, rows, width, first);
                first = false, budget = STEPS_UNTIL_FLUSH;
            }
        }
    }
    const bool direct = !wide && t->columns == width;
    int32_t *c = direct ? t->c : part;
    const int64_t ldc = direct ? t->ldc : width;
    static const int32_t none[MAX_ROWS];
    const int32_t *row_sum = t->row_sum != NULL ? t->row_sum : none;
    LN_UNROLL
    for (int i = 0; i < rows; i++) LN_UNROLL
    for (int j = 0; j < vectors; j++) {
        int32x4_t v = wide ? sum[i][j] : vaddq_s32(sum[i][j], vdupq_n_s32(row_sum[i]));
        vst1q_s32(c + i * ldc + j * LANES, v);
    }
    if (wide)
        flush(t, part, rows, width, first);
    else if (!direct)
        ln_gemm_copy_rows(t->c, t->ldc * (int64_t)sizeof *c, part, width * (int64_t)sizeof *c, rows,
                          t->columns * (int64_t)sizeof *c);
}

#define GEMM_INSTANCE(r)                                                                                               \
    static void full_##r(const ln_gemm_tile *t) { gemm_s16(r, 2, false, t); }                                          \
    static void half_##r(const ln_gemm_tile *t) { gemm_s16(r, 1, false, t); }                                          \
    static void full_wide_##r(const ln_gemm_tile *t) { gemm_s16(r, 2, true, t); }                                      \
    static void half_wide_##r(const ln_gemm_tile *t) { gemm_s16(r, 1, true, t); }
LN_GEMM_ROWS_8(GEMM_INSTANCE)
#define GEMM_FULL(r) [r] = full_##r,
#define GEMM_HALF(r) [r] = half_##r,
#define GEMM_FULL_WIDE(r) [r] = full_wide_##r,
#define GEMM_HALF_WIDE(r) [r] = half_wide_##r,
static const ln_gemm_ukernel full[MAX_ROWS + 1] = {LN_GEMM_ROWS_8(GEMM_FULL)};
static const ln_gemm_ukernel half[MAX_ROWS + 1] = {LN_GEMM_ROWS_8(GEMM_HALF)};
static const ln_gemm_ukernel full_wide[MAX_ROWS + 1] = {LN_GEMM_ROWS_8(GEMM_FULL_WIDE)};
static const ln_gemm_ukernel half_wide[MAX_ROWS + 1] = {LN_GEMM_ROWS_8(GEMM_HALF_WIDE)};

static void convert(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    int16_t *y = dst;
    if (stride == 1 && src_dtype == LINNET_I8)
        for (int64_t i = 0; i < n; i++) y[i] = ((const int8_t *)src)[i];
    else if (stride == 1 && src_dtype == LINNET_U8)
        for (int64_t i = 0; i < n; i++) y[i] = ((const uint8_t *)src)[i];
    else if (stride == 1)
        memcpy(dst, src, (size_t)n * sizeof *y);
    else
        ln_gemm_convert_any(dst, src, stride, n, src_dtype, LINNET_I16);
}

const ln_gemm_set ln_gemm_i8__neon = {.a_dtype = LINNET_I16,
                                      .b_dtype = LINNET_I8,
                                      .c_dtype = LINNET_I32,
                                      .rows = MAX_ROWS,
                                      .width = 2 * LANES,
                                      .depth = 1,
                                      .takes = 1u << LINNET_I8 | 1u << LINNET_U8,
                                      .takes_b = 1u << LINNET_I8 | 1u << LINNET_U8,
                                      .full = full,
                                      .half = half,
                                      .convert = convert,
                                      .row_sums = ln_gemm_row_sums_i16,
                                      .store = ln_gemm_store_neon,
                                      .store_tile = ln_gemm_store_tile_neon,
                                      .store_sum = ln_gemm_store_sum_neon};
const ln_gemm_set ln_gemm_i16__neon = {.a_dtype = LINNET_I16,
                                       .b_dtype = LINNET_I8,
                                       .c_dtype = LINNET_I64,
                                       .rows = MAX_ROWS,
                                       .width = 2 * LANES,
                                       .depth = 1,
                                       .takes = 1u << LINNET_I16,
                                       .narrow = &ln_gemm_i8__neon,
                                       .takes_b = 1u << LINNET_I8 | 1u << LINNET_I16,
                                       .full = full_wide,
                                       .half = half_wide,
                                       .convert = convert,
                                       .row_sums = ln_gemm_row_sums_i16,
                                       .store = ln_gemm_store_neon};
static const ln_gemm_set *const sets[] = {&ln_gemm_i8__neon, &ln_gemm_i16__neon};

LN_GEMM_KERNELS(int__neon, sets)
