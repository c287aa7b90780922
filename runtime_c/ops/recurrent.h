/* recurrent.h - operands, sizes and activations, which the references and the fast kernels of `recurrent` and
 * `recurrent_gradient` share. The steps are written once, in recurrent_steps.inc and recurrent_back.inc, on top of a
 * few hooks. */
#ifndef LN_RECURRENT_H
#define LN_RECURRENT_H

#include "kernel/kernel.h"

/* The numbers of the operands and of the optional results of `recurrent`, then of `recurrent_gradient`. */
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

/* The values of the attribute `activations`. */
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

/* An activation with its constants; kinds without constants ignore them. */
typedef struct ln_recurrent_activation {
    int kind;
    double alpha, beta;
} ln_recurrent_activation;

/* The sizes of a call, in call->state. */
typedef struct ln_recurrent {
    int64_t time, batch, directions, gates, hidden;
    int64_t padded; /* distance between gates in scratch: hidden, rounded up to the kernel's vector width */
    int64_t blocks; /* batched kernels: work items of `width` hidden units each */
} ln_recurrent;

/* The loops of an ISA (fast/tail/recurrent_f32.h), which recurrent_steps.inc passes on to the hooks of a fast kernel.
 * The references pass NULL. */
typedef struct ln_recurrent_vectors ln_recurrent_vectors;

/* The largest number of lines in a thread's scratch; a line has `padded` numbers. */
enum { LN_RECURRENT_LINES = 12 };

/* The largest magnitude of a state that is rounded to integers for weights of 8 bits. */
enum { LN_RECURRENT_LEVELS = 2047 };
/* A state whose largest magnitude is below this counts as 0. */
#define LN_RECURRENT_LEAST 1e-30f

/* For shape rules: checks operand i, which `what` names in the error, against a dtype (for LINNET_I32 also i64) and the
 * shape `want`, in which -1 is unknown. Errors: WRONG_DTYPE, SHAPE_MISMATCH. */
linnet_status ln_recurrent_check(const ln_infer *infer, int i, const char *what, int dtype, int rank,
                                 const int64_t *want);
/* Sets state, work and scratch of a `recurrent` call. Numbers in scratch have `element` bytes, and lines are padded to
 * a multiple of pad_to numbers. Errors: OUT_OF_MEMORY. */
linnet_status ln_recurrent_configure(ln_call *call, int64_t pad_to, size_t element);
/* Returns activation number `index` (0: f, 1: g, 2: h) of a direction. */
ln_recurrent_activation ln_recurrent_activation_of(const ln_recurrent_attributes *a, int64_t direction, int index);
double ln_recurrent_activate(const ln_recurrent_activation *f, double x);
/* Returns the length of a row of the batch, or `time` if operand number `operand` is absent. If the length is out of
   range, reports the error (ln_index_error) and returns -1. */
int64_t ln_recurrent_length(const ln_call *call, const ln_buffers *b, int operand, int64_t row, int64_t time);

/* Tells whether operand i exists. */
static inline bool ln_recurrent_has(const ln_call *call, int i) {
    return i < call->n_inputs && call->inputs[i].dtype != LINNET_NONE;
}

#endif
