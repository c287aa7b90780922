/* gemm_f32__neon.c - f32 matmul and conv for every ARMv8, tiles of up to 8 x 8: 16 accumulators, 8 vectors of A, which
 * hold four steps of K each, and 2 of B. f16 and bf16 operands are widened on the way in (gather) and when packed. */
#include "core/gemm.h"

#include <arm_neon.h>

#define MAX_ROWS 8
#define LANES 4

static inline void store_part(float *c, float32x4_t v, int64_t columns) {
    float lanes[LANES];
    vst1q_f32(lanes, v);
    for (int64_t i = 0; i < columns && i < LANES; i++)
        c[i] = lanes[i];
}

/* One of the four steps: the lane must be a constant. */
#define STEP(lane)                                                                                                      \
    do {                                                                                                                \
        float32x4_t column[2];                                                                                          \
        LN_UNROLL                                                                                                       \
        for (int j = 0; j < vectors; j++, b += LANES)                                                                   \
            column[j] = vld1q_f32(b);                                                                                   \
        LN_UNROLL                                                                                                       \
        for (int i = 0; i < rows; i++)                                                                                  \
            LN_UNROLL                                                                                                   \
            for (int j = 0; j < vectors; j++)                                                                           \
                sum[i][j] = vfmaq_laneq_f32(sum[i][j], column[j], value[i], lane);                                      \
    } while (0)

static inline __attribute__((always_inline)) void gemm_f32(const int rows, const int vectors, const ln_gemm_tile *t) {
    const float *b = t->b;
    const void *const *a = t->a;
    float32x4_t sum[MAX_ROWS][2];
    LN_UNROLL
    for (int i = 0; i < rows; i++)
        LN_UNROLL
        for (int j = 0; j < vectors; j++)
            sum[i][j] = vld1q_f32((const float *)t->init + j * LANES);
    for (int64_t taps = t->taps; taps > 0; taps--, a += rows) {
        const float *row[MAX_ROWS];
        LN_UNROLL
        for (int i = 0; i < rows; i++)
            row[i] = a[i];
        int64_t left = t->kc;
        for (; left >= 4; left -= 4) {
            float32x4_t value[MAX_ROWS];
            LN_UNROLL
            for (int i = 0; i < rows; i++, row[i - 1] += 4)
                value[i] = vld1q_f32(row[i]);
            STEP(0);
            STEP(1);
            STEP(2);
            STEP(3);
        }
        for (; left > 0; left--) {
            float32x4_t value[MAX_ROWS];
            LN_UNROLL
            for (int i = 0; i < rows; i++, row[i - 1]++)
                value[i] = vld1q_dup_f32(row[i]);
            STEP(0);
        }
    }
    float32x4_t low = vdupq_n_f32(t->low), high = vdupq_n_f32(t->high);
    float *c = t->c;
    bool whole = t->columns == vectors * LANES;
    LN_UNROLL
    for (int i = 0; i < rows; i++, c += t->ldc)
        LN_UNROLL
        for (int j = 0; j < vectors; j++) {
            float32x4_t v = vminq_f32(high, vmaxq_f32(low, sum[i][j]));
            if (whole)
                vst1q_f32(c + j * LANES, v);
            else
                store_part(c + j * LANES, v, t->columns - j * LANES);
        }
}

#define GEMM_INSTANCE(r)                                                                                                \
    static void full_##r(const ln_gemm_tile *t) { gemm_f32(r, 2, t); }                                                 \
    static void half_##r(const ln_gemm_tile *t) { gemm_f32(r, 1, t); }
LN_GEMM_ROWS_8(GEMM_INSTANCE)
#define GEMM_FULL(r) full_##r,
#define GEMM_HALF(r) half_##r,
static const ln_gemm_ukernel full[MAX_ROWS + 1] = {NULL, LN_GEMM_ROWS_8(GEMM_FULL)};
static const ln_gemm_ukernel half[MAX_ROWS + 1] = {NULL, LN_GEMM_ROWS_8(GEMM_HALF)};

static void convert(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    float *y = dst;
    int64_t i = 0;
    if (stride == 1 && src_dtype == LINNET_F16)
        for (; i + 4 <= n; i += 4)
            vst1q_f32(y + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)src + i))));
    if (stride == 1 && src_dtype == LINNET_BF16)
        for (; i + 4 <= n; i += 4)
            vst1q_f32(y + i, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)src + i), 16)));
    ln_gemm_convert_any(y + i, (const char *)src + i * stride * (int64_t)ln_dtype_size(src_dtype), stride, n - i,
                        src_dtype, LINNET_F32);
}

const ln_gemm_set ln_gemm_f32__neon = {
    .a_dtype = LINNET_F32, .b_dtype = LINNET_F32, .c_dtype = LINNET_F32, .rows = MAX_ROWS, .width = 2 * LANES,
    .depth = 1, .takes = 1u << LINNET_F32 | 1u << LINNET_F16 | 1u << LINNET_BF16, .full = full, .half = half,
    .convert = convert};
static const ln_gemm_set *const sets[] = {&ln_gemm_f32__neon};

LN_GEMM_KERNELS(f32__neon, "matmul_f32_8x8__neon", "conv_f32_igemm_8x8__neon", LN_ISA_NEON, sets)
