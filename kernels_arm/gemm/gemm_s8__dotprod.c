/* gemm_s8__dotprod.c - 8-bit matmul and conv with sdot and udot, tiles of up to 8 x 8, four products per lane. Both
 * factors must be signed or both unsigned. Therefore 128 is added to i8 weights for u8 activations, and subtracted from
 * u8 weights for i8 activations. The driver removes the difference with the help of the row sums. */
#include "fast/gemm/gemm.h"

#include <arm_neon.h>
#include <string.h>

#define MAX_ROWS 8
#define LANES 4

static __attribute__((noinline)) uint32_t load_few(const uint8_t *p, int64_t n) {
    uint32_t v = 0;
    for (int64_t i = 0; i < n; i++) v |= (uint32_t)p[i] << (8 * i);
    return v;
}

/* Four steps of K. The lane must be a constant. */
#define STEP(lane)                                                                                                     \
    do {                                                                                                               \
        LN_UNROLL                                                                                                      \
        for (int j = 0; j < vectors; j++, b += 4 * LANES) {                                                            \
            uint8x16_t column = vld1q_u8(b);                                                                           \
            LN_UNROLL                                                                                                  \
            for (int i = 0; i < rows; i++)                                                                             \
                sum[i][j] = a_signed ? vdotq_laneq_s32(sum[i][j], vreinterpretq_s8_u8(column),                         \
                                                       vreinterpretq_s8_u8(value[i]), lane)                            \
                                     : vreinterpretq_s32_u32(                                                          \
                                           vdotq_laneq_u32(vreinterpretq_u32_s32(sum[i][j]), column, value[i], lane)); \
        }                                                                                                              \
    } while (0)

static inline __attribute__((always_inline)) void gemm_s8(const int rows, const int vectors, const bool a_signed,
                                                          const ln_gemm_tile *t) {
    const uint8_t *b = t->b;
    const void *const *a = t->a;
    int32x4_t sum[MAX_ROWS][2];
    LN_UNROLL
    for (int i = 0; i < rows; i++) LN_UNROLL
    for (int j = 0; j < vectors; j++) sum[i][j] = vld1q_s32((const int32_t *)t->init + j * LANES);
    for (int64_t taps = t->taps; taps > 0; taps--, a += rows) {
        const uint8_t *row[MAX_ROWS];
        LN_UNROLL
        for (int i = 0; i < rows; i++) row[i] = a[i];
        int64_t left = t->kc;
        uint8x16_t value[MAX_ROWS];
        for (; left >= 16; left -= 16) {
            LN_UNROLL
            for (int i = 0; i < rows; i++, row[i - 1] += 16) value[i] = vld1q_u8(row[i]);
            STEP(0);
            STEP(1);
            STEP(2);
            STEP(3);
        }
        for (; left > 0; left -= 4) {
            LN_UNROLL
            for (int i = 0; i < rows; i++, row[i - 1] += 4) {
                uint32_t four;
                if (left >= 4)
                    memcpy(&four, row[i], sizeof four);
                else
                    four = load_few(row[i], left);
                value[i] = vreinterpretq_u8_u32(vdupq_n_u32(four));
            }
            STEP(0);
        }
    }
    const int64_t width = vectors * LANES;
    const bool whole = t->columns == width; /* a tile at the edge is computed on the stack */
    int32_t edge[MAX_ROWS * 2 * LANES], *c = whole ? t->c : edge;
    const int64_t ldc = whole ? t->ldc : width;
    static const int32_t none[MAX_ROWS];
    const int32_t *row_sum = t->row_sum != NULL ? t->row_sum : none;
    LN_UNROLL
    for (int i = 0; i < rows; i++) LN_UNROLL
    for (int j = 0; j < vectors; j++) vst1q_s32(c + i * ldc + j * LANES, vaddq_s32(sum[i][j], vdupq_n_s32(row_sum[i])));
    if (!whole)
        ln_gemm_copy_rows(t->c, t->ldc * (int64_t)sizeof *c, edge, width * (int64_t)sizeof *c, rows,
                          t->columns * (int64_t)sizeof *c);
}

#define GEMM_INSTANCE(r)                                                                                               \
    static void full_s_##r(const ln_gemm_tile *t) { gemm_s8(r, 2, true, t); }                                          \
    static void half_s_##r(const ln_gemm_tile *t) { gemm_s8(r, 1, true, t); }                                          \
    static void full_u_##r(const ln_gemm_tile *t) { gemm_s8(r, 2, false, t); }                                         \
    static void half_u_##r(const ln_gemm_tile *t) { gemm_s8(r, 1, false, t); }
LN_GEMM_ROWS_8(GEMM_INSTANCE)
#define GEMM_FULL_S(r) [r] = full_s_##r,
#define GEMM_HALF_S(r) [r] = half_s_##r,
#define GEMM_FULL_U(r) [r] = full_u_##r,
#define GEMM_HALF_U(r) [r] = half_u_##r,
static const ln_gemm_ukernel full_s[MAX_ROWS + 1] = {LN_GEMM_ROWS_8(GEMM_FULL_S)};
static const ln_gemm_ukernel half_s[MAX_ROWS + 1] = {LN_GEMM_ROWS_8(GEMM_HALF_S)};
static const ln_gemm_ukernel full_u[MAX_ROWS + 1] = {LN_GEMM_ROWS_8(GEMM_FULL_U)};
static const ln_gemm_ukernel half_u[MAX_ROWS + 1] = {LN_GEMM_ROWS_8(GEMM_HALF_U)};

static void convert(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    if (stride == 1)
        memcpy(dst, src, (size_t)n);
    else
        ln_gemm_convert_any(dst, src, stride, n, src_dtype, LINNET_U8);
}

#include "kernels_arm/gemm/gemm_store.inc"

const ln_gemm_set ln_gemm_i8__dotprod = {.a_dtype = LINNET_I8,
                                         .b_dtype = LINNET_I8,
                                         .c_dtype = LINNET_I32,
                                         .rows = MAX_ROWS,
                                         .width = 2 * LANES,
                                         .depth = 4,
                                         .takes = 1u << LINNET_I8,
                                         .takes_b = 1u << LINNET_I8 | 1u << LINNET_U8,
                                         .full = full_s,
                                         .half = half_s,
                                         .convert = convert,
                                         .row_sums = ln_gemm_row_sums_i8,
                                         .store = store};
const ln_gemm_set ln_gemm_u8__dotprod = {.a_dtype = LINNET_U8,
                                         .b_dtype = LINNET_U8,
                                         .c_dtype = LINNET_I32,
                                         .rows = MAX_ROWS,
                                         .width = 2 * LANES,
                                         .depth = 4,
                                         .takes = 1u << LINNET_U8,
                                         .takes_b = 1u << LINNET_I8 | 1u << LINNET_U8,
                                         .full = full_u,
                                         .half = half_u,
                                         .convert = convert,
                                         .row_sums = ln_gemm_row_sums_u8,
                                         .store = store};
static const ln_gemm_set *const sets[] = {&ln_gemm_i8__dotprod, &ln_gemm_u8__dotprod};

LN_GEMM_KERNELS(int8__dotprod, sets)
