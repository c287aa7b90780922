/* recurrent.h - what the reference and the fast kernels of `recurrent` share: sizes, activations, plan-time state.
 * The steps themselves are written once, in recurrent_steps.inc, over a few hooks. */
#ifndef LN_RECURRENT_H
#define LN_RECURRENT_H

#include "core/kernel.h"

enum ln_recurrent_input {
    LN_RECURRENT_P,
    LN_RECURRENT_WEIGHTS,
    LN_RECURRENT_STATE_H,
    LN_RECURRENT_STATE_C,
    LN_RECURRENT_LENGTHS,
    LN_RECURRENT_PEEPHOLES,
    LN_RECURRENT_BIAS
};

/* The numbers of the attribute `activations`. */
enum ln_activation {
    LN_ACTIVATION_SIGMOID,
    LN_ACTIVATION_TANH,
    LN_ACTIVATION_RELU,
    LN_ACTIVATION_AFFINE,
    LN_ACTIVATION_LEAKY_RELU,
    LN_ACTIVATION_THRESHOLDED_RELU,
    LN_ACTIVATION_SCALED_TANH,
    LN_ACTIVATION_HARD_SIGMOID,
    LN_ACTIVATION_ELU,
    LN_ACTIVATION_SOFTSIGN,
    LN_ACTIVATION_SOFTPLUS,
    LN_ACTIVATION_COUNT
};

typedef struct ln_recurrent_activation {
    int kind;
    double alpha, beta;
} ln_recurrent_activation;

typedef struct ln_recurrent {
    int64_t time, batch, directions, gates, hidden;
    int64_t padded; /* distance between gates in scratch: hidden, rounded up to what the kernel computes at once */
} ln_recurrent;

enum { LN_RECURRENT_LINES = 11 }; /* lines of `padded` numbers in a thread's scratch, at most */

/* Sizes, work and scratch of a call whose numbers are `element` bytes. */
linnet_status ln_recurrent_configure(ln_call *call, int64_t pad_to, size_t element);
/* Activation number `index` (f, g, h) of a direction. */
ln_recurrent_activation ln_recurrent_activation_of(const ln_recurrent_attributes *a, int64_t direction, int index);
double ln_recurrent_activate(const ln_recurrent_activation *f, double x);

/* What an ISA brings to the f32 kernel: the loops that take the time. Everything else is in recurrent_f32.c, once. */
typedef struct ln_recurrent_vectors {
    int64_t panel; /* columns of packed weights that are computed at once */
    /* y [columns] += x [n] . w, packed as [columns / panel][n][panel] */
    void (*multiply)(const float *w, int64_t columns, const float *x, int64_t n, float *y);
    /* Sigmoid or tanh of n numbers, up to a whole vector more; clip 0: none. */
    void (*activate)(bool tangent, float clip, float *x, int64_t n);
} ln_recurrent_vectors;
bool ln_recurrent_supports(const ln_call *call);
void ln_recurrent_pack(const ln_call *call, int64_t panel, float *out);
linnet_status ln_recurrent_run(const ln_recurrent_vectors *vectors, const ln_call *call, const ln_buffers *b,
                               int64_t begin, int64_t end, int thread);
static inline bool ln_recurrent_has(const ln_call *call, int i) {
    return i < call->n_inputs && call->inputs[i].dtype != LINNET_NONE;
}

#endif
