/* recurrent.inc.c - RNN, GRU and LSTM in f32: the recurrent product as columns of packed weights, gates as vectors.
 * Compiled per ISA by longtail__<isa>.c, after softmax.inc.c, whose exponential it uses. */
#include "ops/recurrent.h"

#define REAL float
enum { RECURRENT_VECTORS = 4, RECURRENT_PANEL = RECURRENT_VECTORS * VF_WIDTH };

typedef struct cell {
    const ln_recurrent_attributes *attributes;
    int64_t hidden, padded;
    ln_recurrent_activation activations[3];
    float clip;
    const float *peepholes, *bias;
    const float *weights; /* [gate][panel][k][RECURRENT_PANEL] of one direction */
} cell;

static void bind_weights(cell *s, const ln_call *call, const ln_buffers *b, int64_t direction) {
    const ln_recurrent *plan = call->state;
    s->weights = (const float *)b->packed + direction * plan->gates * plan->padded * plan->hidden;
}

static void fetch(const ln_tensor *t, const void *data, int64_t at, int64_t n, float *out) {
    (void)t;
    memcpy(out, (const float *)data + at, (size_t)n * sizeof *out);
}

static void put(const ln_tensor *t, void *data, int64_t at, int64_t n, const float *x) {
    (void)t;
    memcpy((float *)data + at, x, (size_t)n * sizeof *x);
}

/* Odd and even k have sums of their own: twice as many independent chains of multiply-adds. */
static void multiply(const cell *s, int64_t first, int64_t n, const float *x, float *y) {
    const float *w = s->weights + first * s->padded * s->hidden, *end = y + n * s->padded;
    for (; y < end; y += RECURRENT_PANEL) {
        vf even[RECURRENT_VECTORS], odd[RECURRENT_VECTORS];
        LN_UNROLL
        for (int i = 0; i < RECURRENT_VECTORS; i++) even[i] = vf_load(y + i * VF_WIDTH), odd[i] = vf_zero();
        int64_t k = 0;
        for (; k + 2 <= s->hidden; k += 2, w += 2 * RECURRENT_PANEL) {
            const vf a = vf_set1(x[k]), b = vf_set1(x[k + 1]);
            LN_UNROLL
            for (int i = 0; i < RECURRENT_VECTORS; i++) {
                even[i] = vf_fma(a, vf_load(w + i * VF_WIDTH), even[i]);
                odd[i] = vf_fma(b, vf_load(w + RECURRENT_PANEL + i * VF_WIDTH), odd[i]);
            }
        }
        for (; k < s->hidden; k++, w += RECURRENT_PANEL) {
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
    const vf y = vf_div(e, vf_add(one, e)); /* of -|x| */
    const vf r = vf_select(vf_gt(x, vf_zero()), vf_sub(one, y), y);
    return vf_select(vf_eq(x, x), r, x);
}

/* Cephes tanhf (S. L. Moshier): a polynomial near 0, where 1 - 2 / (e^2x + 1) would cancel. */
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

/* Lines are padded to whole vectors. */
static void activate(const ln_recurrent_activation *f, float clip, float *x, int64_t n) {
    if (clip > 0)
        for (int64_t i = 0; i < n; i += VF_WIDTH)
            vf_store(x + i, vf_min(vf_set1(clip), vf_max(vf_set1(-clip), vf_load(x + i))));
    if (f->kind == LN_ACTIVATION_SIGMOID)
        for (int64_t i = 0; i < n; i += VF_WIDTH) vf_store(x + i, sigmoid(vf_load(x + i)));
    else if (f->kind == LN_ACTIVATION_TANH)
        for (int64_t i = 0; i < n; i += VF_WIDTH) vf_store(x + i, hyperbolic_tangent(vf_load(x + i)));
    else
        for (int64_t i = 0; i < n; i++) x[i] = (float)ln_recurrent_activate(f, (double)x[i]);
}

#include "ops/recurrent_steps.inc"

static bool recurrent_supports(const ln_call *call) {
    if (call->epilogue != NULL || call->inputs[LN_RECURRENT_WEIGHTS].data == NULL) return false;
    for (int i = 0; i < call->n_inputs + call->n_outputs; i++) {
        const ln_tensor *t = i < call->n_inputs ? &call->inputs[i] : &call->outputs[i - call->n_inputs];
        if (t->dtype == LINNET_NONE || i == LN_RECURRENT_LENGTHS) continue;
        if (t->dtype != LINNET_F32 || !ln_is_dense(t)) return false;
    }
    return true;
}

static linnet_status recurrent_configure(ln_call *call) {
    const linnet_status status = ln_recurrent_configure(call, RECURRENT_PANEL, sizeof(float));
    const ln_recurrent *plan = call->state;
    if (status == LINNET_OK)
        call->packed_bytes =
            (size_t)(plan->directions * plan->gates * plan->padded) * (size_t)plan->hidden * sizeof(float);
    return status;
}

static void recurrent_pack(const ln_call *call, void *packed) {
    const ln_recurrent *plan = call->state;
    const float *w = call->inputs[LN_RECURRENT_WEIGHTS].data;
    float *out = packed;
    for (int64_t gate = 0; gate < plan->directions * plan->gates; gate++, w += plan->hidden * plan->hidden)
        for (int64_t first = 0; first < plan->padded; first += RECURRENT_PANEL)
            for (int64_t k = 0; k < plan->hidden; k++)
                for (int64_t i = first; i < first + RECURRENT_PANEL; i++)
                    *out++ = i < plan->hidden ? w[i * plan->hidden + k] : 0.0f;
}

static linnet_status recurrent_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    (void)phase;
    return run_rows(call, b, begin, end, thread);
}

const ln_kernel LN_SIMD_NAME(ln_recurrent) = {.name = "recurrent_f32__" LN_SIMD_TEXT,
                                              .op = LN_OP_RECURRENT,
                                              .isa = LN_SIMD_ISA,
                                              .supports = recurrent_supports,
                                              .configure = recurrent_configure,
                                              .pack = recurrent_pack,
                                              .run = recurrent_run};
#undef REAL
