/* recurrent.inc.c - the hot loops of RNN, GRU and LSTM in f32: the product with the state, sigmoid and tanh.
 * Compiled per ISA by longtail__<isa>.c. The other parts are in fast/tail/recurrent_f32.c and recurrent_gradient_f32.c.
 */
#include "fast/tail/exp.inc.c"
#include "fast/tail/recurrent_f32.h"
#include "fast/tail/recurrent_gradient_f32.h"

enum { RECURRENT_VECTORS = 4, RECURRENT_PANEL = RECURRENT_VECTORS * VF_WIDTH };

/* Odd and even k have separate sums, which gives twice as many independent chains of multiply-adds. */
static void recurrent_multiply(const float *w, int64_t columns, const float *x, int64_t n, float *y) {
    for (const float *end = y + columns; y < end; y += RECURRENT_PANEL) {
        vf even[RECURRENT_VECTORS], odd[RECURRENT_VECTORS];
        LN_UNROLL
        for (int i = 0; i < RECURRENT_VECTORS; i++) even[i] = vf_load(y + i * VF_WIDTH), odd[i] = vf_zero();
        int64_t k = 0;
        for (; k + 2 <= n; k += 2, w += 2 * RECURRENT_PANEL) {
            const vf a = vf_set1(x[k]), b = vf_set1(x[k + 1]);
            LN_UNROLL
            for (int i = 0; i < RECURRENT_VECTORS; i++) {
                even[i] = vf_fma(a, vf_load(w + i * VF_WIDTH), even[i]);
                odd[i] = vf_fma(b, vf_load(w + RECURRENT_PANEL + i * VF_WIDTH), odd[i]);
            }
        }
        for (; k < n; k++, w += RECURRENT_PANEL) {
            const vf a = vf_set1(x[k]);
            LN_UNROLL
            for (int i = 0; i < RECURRENT_VECTORS; i++) even[i] = vf_fma(a, vf_load(w + i * VF_WIDTH), even[i]);
        }
        LN_UNROLL
        for (int i = 0; i < RECURRENT_VECTORS; i++) vf_store(y + i * VF_WIDTH, vf_add(even[i], odd[i]));
    }
}

/* Rounds a state to integers for weights of 8 bits, in place, as the reference does. If a number is not finite, the
 * scale is NaN. */
static float recurrent_round(float *x, int64_t n) {
    vf most = vf_zero(), odd = vf_zero();
    for (int64_t i = 0; i < n; i += VF_WIDTH) {
        const vf size = vf_abs(vf_load(x + i));
        most = vf_max(size, most);
        odd = vf_add(odd, vf_mul(size, vf_zero()));
    }
    const float peak = vf_reduce_max(most);
    const float inverse = peak >= LN_RECURRENT_LEAST ? (float)LN_RECURRENT_LEVELS / peak : 0;
    for (int64_t i = 0; i < n; i += VF_WIDTH)
        vi_store_i16((int16_t *)(void *)x + i, vi_from_vf(vf_mul(vf_load(x + i), vf_set1(inverse))));
    return (inverse > 0 ? peak / (float)LN_RECURRENT_LEVELS : 0) + vf_reduce_add(odd);
}

/* Adds sums of integers, times both scales, to y. */
static LN_ALWAYS_INLINE void recurrent_add(const vi *sums, const float *scales, float scale, float *y) {
    LN_UNROLL
    for (int i = 0; i < RECURRENT_VECTORS; i++) {
        const vf by = vf_mul(vf_load(scales + i * VF_WIDTH), vf_set1(scale));
        vf_store(y + i * VF_WIDTH, vf_fma(vf_from_vi(sums[i]), by, vf_load(y + i * VF_WIDTH)));
    }
}

#if defined(LN_SIMD_NEON)
enum { RECURRENT_GROUP = 1, RECURRENT_OFFSET = 0 };

/* The sums of the first two products and those of the other two are separate. */
static void recurrent_multiply_levels(const uint8_t *w, const float *scales, int64_t columns, const int16_t *levels,
                                      int64_t n, float scale, float *y) {
    for (const float *end = y + columns; y < end; y += RECURRENT_PANEL, scales += RECURRENT_PANEL) {
        vi sums[RECURRENT_VECTORS], more[RECURRENT_VECTORS];
        LN_UNROLL
        for (int i = 0; i < RECURRENT_VECTORS; i++) sums[i] = more[i] = vi_zero();
        for (int64_t k = 0; k < n; k += 4, w += 4 * RECURRENT_PANEL) {
            const int16x4_t x = vld1_s16(levels + k);
#define RECURRENT_LANE(TO, K)                                                                                          \
    {                                                                                                                  \
        const int8x16_t b = vreinterpretq_s8_u8(vld1q_u8(w + (K) * RECURRENT_PANEL));                                  \
        const int16x8_t low = vmovl_s8(vget_low_s8(b)), high = vmovl_high_s8(b);                                       \
        TO[0] = vmlal_lane_s16(TO[0], vget_low_s16(low), x, K);                                                        \
        TO[1] = vmlal_high_lane_s16(TO[1], low, x, K);                                                                 \
        TO[2] = vmlal_lane_s16(TO[2], vget_low_s16(high), x, K);                                                       \
        TO[3] = vmlal_high_lane_s16(TO[3], high, x, K);                                                                \
    }
            RECURRENT_LANE(sums, 0)
            RECURRENT_LANE(sums, 1)
            RECURRENT_LANE(more, 2)
            RECURRENT_LANE(more, 3)
#undef RECURRENT_LANE
        }
        LN_UNROLL
        for (int i = 0; i < RECURRENT_VECTORS; i++) sums[i] = vi_add(sums[i], more[i]);
        recurrent_add(sums, scales, scale, y);
    }
}
#else
enum { RECURRENT_GROUP = 4, RECURRENT_OFFSET = 128 };

/* The upper byte of each 16-bit half of a lane. */
#if defined(LN_SIMD_AVX512)
#define UPPER_BYTES(v) _mm512_srli_epi16(v, 8)
#elif defined(LN_SIMD_AVX2)
#define UPPER_BYTES(v) _mm256_srli_epi16(v, 8)
#elif defined(LN_SIMD_SSE2)
#define UPPER_BYTES(v) _mm_srli_epi16(v, 8)
#endif

/* A lane has four weights of a column, each plus 128. Its 16-bit halves are multiplied by two levels at a time. */
static void recurrent_multiply_levels(const uint8_t *w, const float *scales, int64_t columns, const int16_t *levels,
                                      int64_t n, float scale, float *y) {
    int32_t total = 0;
    for (int64_t k = 0; k < n; k++) total += levels[k];
    const vi begin = vi_set1(-RECURRENT_OFFSET * total), bytes = vi_set1(0x00ff00ff);
    for (const float *end = y + columns; y < end; y += RECURRENT_PANEL, scales += RECURRENT_PANEL) {
        vi sums[RECURRENT_VECTORS];
        LN_UNROLL
        for (int i = 0; i < RECURRENT_VECTORS; i++) sums[i] = begin;
        for (int64_t k = 0; k < n; k += 4, w += 4 * RECURRENT_PANEL) {
            int32_t first, second;
            memcpy(&first, levels + k, sizeof first);
            memcpy(&second, levels + k + 2, sizeof second);
            const vi a = vi_set1(first), b = vi_set1(second);
            LN_UNROLL
            for (int i = 0; i < RECURRENT_VECTORS; i++) {
                const vi four = vi_load((const int32_t *)(const void *)(w + 4 * i * VF_WIDTH));
                sums[i] = vi_add_pairs(sums[i], vi_and(four, bytes), a);
                sums[i] = vi_add_pairs(sums[i], UPPER_BYTES(four), b);
            }
        }
        recurrent_add(sums, scales, scale, y);
    }
}
#endif

static inline vf sigmoid(vf x) {
    const vf e = exp_not_positive(vf_neg(vf_abs(x))), one = vf_set1(1.0f);
    const vf y = vf_div(e, vf_add(one, e)); /* the sigmoid of -|x| */
    const vf r = vf_select(vf_gt(x, vf_zero()), vf_sub(one, y), y);
    return vf_select(vf_eq(x, x), r, x);
}

/* Cephes tanhf (S. L. Moshier): uses a polynomial near 0, where 1 - 2 / (e^2x + 1) would cancel. */
static inline vf hyperbolic_tangent(vf x) {
    const vf size = vf_abs(x), z = vf_mul(x, x), one = vf_set1(1.0f);
    const vf e = exp_not_positive(vf_mul(vf_set1(-2.0f), size));
    const vf large = vf_div(vf_sub(one, e), vf_add(one, e));
    vf p = vf_set1(-5.70498872745e-3f);
    p = vf_fma(p, z, vf_set1(2.06390887954e-2f));
    p = vf_fma(p, z, vf_set1(-5.37397155531e-2f));
    p = vf_fma(p, z, vf_set1(1.33314422036e-1f));
    p = vf_fma(p, z, vf_set1(-3.33332819422e-1f));
    const vf small = vf_fma(vf_mul(p, z), x, x);
    const vf r = vf_select(vf_lt(size, vf_set1(0.625f)), small, vf_select(vf_lt(x, vf_zero()), vf_neg(large), large));
    return vf_select(vf_eq(x, x), r, x);
}

static void recurrent_activate(bool tangent, float clip, float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += VF_WIDTH) {
        vf v = vf_load(x + i);
        if (clip > 0) v = vf_min(vf_set1(clip), vf_max(vf_set1(-clip), v));
        vf_store(x + i, tangent ? hyperbolic_tangent(v) : sigmoid(v));
    }
}

static const ln_recurrent_vectors recurrent_vectors = {.panel = RECURRENT_PANEL,
                                                       .multiply = recurrent_multiply,
                                                       .round = recurrent_round,
                                                       .multiply_levels = recurrent_multiply_levels,
                                                       .group = RECURRENT_GROUP,
                                                       .offset = RECURRENT_OFFSET,
                                                       .activate = recurrent_activate,
                                                       .set = &LN_SIMD_NAME(ln_gemm_f32)};

static void recurrent_pack(const ln_call *call, void *packed) { ln_recurrent_pack(call, &recurrent_vectors, packed); }

#define RECURRENT_KERNEL(NAME)                                                                                         \
    static linnet_status NAME##_configure(ln_call *call) { return ln_##NAME##_configure(call, &recurrent_vectors); }   \
    static linnet_status NAME##_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,   \
                                    int thread) {                                                                      \
        return ln_##NAME##_run(&recurrent_vectors, call, b, phase, begin, end, thread);                                \
    }
RECURRENT_KERNEL(recurrent_packed)
RECURRENT_KERNEL(recurrent_batch)
RECURRENT_KERNEL(recurrent_gradient)

const ln_kernel_code LN_SIMD_NAME(ln_recurrent) = {.can = ln_recurrent_can,
                                                   .cost = ln_recurrent_cost,
                                                   .configure = recurrent_packed_configure,
                                                   .pack = recurrent_pack,
                                                   .run = recurrent_packed_run};
const ln_kernel_code LN_SIMD_NAME(ln_recurrent_batch) = {.can = ln_recurrent_batch_can,
                                                         .cost = ln_recurrent_batch_cost,
                                                         .configure = recurrent_batch_configure,
                                                         .run = recurrent_batch_run};
const ln_kernel_code LN_SIMD_NAME(ln_recurrent_gradient) = {
    .can = ln_recurrent_gradient_can, .configure = recurrent_gradient_configure, .run = recurrent_gradient_run};
