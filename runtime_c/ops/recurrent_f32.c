/* recurrent_f32.c - RNN, GRU and LSTM in f32 over packed weights: what is the same for every ISA.
 * The hot loops are in simd/recurrent.inc.c, the steps in recurrent_steps.inc. */
#include "ops/recurrent.h"

#include <string.h>

#define REAL float

typedef struct cell {
    const ln_recurrent_attributes *attributes;
    int64_t hidden, padded;
    ln_recurrent_activation activations[3];
    float clip;
    const float *peepholes, *bias;
    const ln_recurrent_vectors *vectors;
    const float *weights; /* [gate][panel][k][column of the panel] of one direction */
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

static void multiply(const cell *s, int64_t first, int64_t n, const float *x, float *y) {
    s->vectors->multiply(s->weights + first * s->padded * s->hidden, n * s->padded, x, s->hidden, y);
}

static void activate(const cell *s, int index, float clip, float *x) {
    const ln_recurrent_activation *f = &s->activations[index];
    if (f->kind == LN_ACTIVATION_SIGMOID || f->kind == LN_ACTIVATION_TANH) {
        s->vectors->activate(f->kind == LN_ACTIVATION_TANH, clip, x, s->hidden);
        return;
    }
    for (int64_t i = 0; i < s->hidden; i++) {
        const float v = clip <= 0 ? x[i] : x[i] < -clip ? -clip : x[i] > clip ? clip : x[i];
        x[i] = (float)ln_recurrent_activate(f, (double)v);
    }
}

#include "ops/recurrent_steps.inc"

bool ln_recurrent_supports(const ln_call *call) {
    if (call->epilogue != NULL || call->inputs[LN_RECURRENT_WEIGHTS].data == NULL) return false;
    for (int i = 0; i < call->n_inputs + call->n_outputs; i++) {
        const ln_tensor *t = i < call->n_inputs ? &call->inputs[i] : &call->outputs[i - call->n_inputs];
        if (t->dtype == LINNET_NONE || i == LN_RECURRENT_LENGTHS) continue;
        if (t->dtype != LINNET_F32 || !ln_is_dense(t)) return false;
    }
    return true;
}

void ln_recurrent_pack(const ln_call *call, int64_t panel, float *out) {
    const ln_recurrent *plan = call->state;
    const float *w = call->inputs[LN_RECURRENT_WEIGHTS].data;
    for (int64_t gate = 0; gate < plan->directions * plan->gates; gate++, w += plan->hidden * plan->hidden)
        for (int64_t first = 0; first < plan->padded; first += panel)
            for (int64_t k = 0; k < plan->hidden; k++)
                for (int64_t i = first; i < first + panel; i++)
                    *out++ = i < plan->hidden ? w[i * plan->hidden + k] : 0.0f;
}

linnet_status ln_recurrent_run(const ln_recurrent_vectors *vectors, const ln_call *call, const ln_buffers *b,
                               int64_t begin, int64_t end, int thread) {
    return run_rows(vectors, call, b, begin, end, thread);
}
