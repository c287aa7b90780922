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
                                                       .activate = recurrent_activate,
                                                       .set = &LN_SIMD_NAME(ln_gemm_f32)};

static void recurrent_pack(const ln_call *call, void *packed) { ln_recurrent_pack(call, RECURRENT_PANEL, packed); }

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
