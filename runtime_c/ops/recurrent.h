/* recurrent.h - what the references and the fast kernels of `recurrent` and `recurrent_gradient` share: sizes,
 * activations, plan-time state. The steps are written once, in recurrent_steps.inc and recurrent_back.inc, over a few
 * hooks. */
#ifndef LN_RECURRENT_H
#define LN_RECURRENT_H

#include "core/gemm.h"

enum ln_recurrent_input {
    LN_RECURRENT_P,
    LN_RECURRENT_WEIGHTS,
    LN_RECURRENT_STATE_H,
    LN_RECURRENT_STATE_C,
    LN_RECURRENT_LENGTHS,
    LN_RECURRENT_PEEPHOLES,
    LN_RECURRENT_BIAS
};
enum ln_recurrent_output { LN_RECURRENT_GATES = 3, LN_RECURRENT_CELLS };

enum ln_recurrent_gradient_input {
    LN_GRAD_WEIGHTS,
    LN_GRAD_GATES,
    LN_GRAD_Y,
    LN_GRAD_CELLS,
    LN_GRAD_STATE_H,
    LN_GRAD_STATE_C,
    LN_GRAD_LENGTHS,
    LN_GRAD_DY,
    LN_GRAD_DY_H,
    LN_GRAD_DY_C
};
enum ln_recurrent_gradient_output { LN_GRAD_DP, LN_GRAD_DH, LN_GRAD_DC, LN_GRAD_DQ };

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
    int64_t blocks; /* batched kernels: of `width` hidden units, an item each */
} ln_recurrent;

enum { LN_RECURRENT_LINES = 11 }; /* lines of `padded` numbers in a thread's scratch, at most */

/* Operand i of a shape rule against a shape with unknowns (-1); integers for lengths, else of the type of operand 0. */
linnet_status ln_recurrent_check(const ln_infer *infer, int i, const char *what, bool lengths, int rank,
                                 const int64_t *want);
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
    const ln_gemm_set *set; /* for whole batches */
} ln_recurrent_vectors;
bool ln_recurrent_supports(const ln_call *call);
void ln_recurrent_pack(const ln_call *call, int64_t panel, float *out);
linnet_status ln_recurrent_run(const ln_recurrent_vectors *vectors, const ln_call *call, const ln_buffers *b,
                               int64_t begin, int64_t end, int thread);

/* All rows of a batch together, over weights known only while running: one phase packs them, then one per step, whose
 * items are blocks of hidden units. */
bool ln_recurrent_batch_supports(const ln_call *call);
linnet_status ln_recurrent_batch_configure(ln_call *call, const ln_recurrent_vectors *vectors);
linnet_status ln_recurrent_batch_run(const ln_recurrent_vectors *vectors, const ln_call *call, const ln_buffers *b,
                                     int phase, int64_t begin, int64_t end, int thread);
bool ln_recurrent_gradient_supports(const ln_call *call);
linnet_status ln_recurrent_gradient_configure(ln_call *call, const ln_recurrent_vectors *vectors);
linnet_status ln_recurrent_gradient_run(const ln_recurrent_vectors *vectors, const ln_call *call, const ln_buffers *b,
                                        int phase, int64_t begin, int64_t end, int thread);
/* Whether every operand but the lengths is dense f32. */
bool ln_recurrent_dense_f32(const ln_call *call, int lengths);
/* Of a row of the batch: `time` when the operand is absent; -1, and the error is reported, when out of range. */
int64_t ln_recurrent_length(const ln_call *call, const ln_buffers *b, int operand, int64_t row, int64_t time);

static inline bool ln_recurrent_has(const ln_call *call, int i) {
    return i < call->n_inputs && call->inputs[i].dtype != LINNET_NONE;
}

#endif
