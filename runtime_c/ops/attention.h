/* attention.h - the operands of an attention as matrices, and which keys a query sees. The reference, the fast kernels
 * and the shape rule share it. */
#ifndef LN_ATTENTION_H
#define LN_ATTENTION_H

#include "kernel/kernel.h"

enum ln_attention_operand {
    LN_ATTENTION_QUERY,
    LN_ATTENTION_KEY,
    LN_ATTENTION_VALUE,
    LN_ATTENTION_MASK,
    LN_ATTENTION_LENGTHS,
    LN_ATTENTION_PAST_KEY,
    LN_ATTENTION_PAST_VALUE,
    LN_ATTENTION_OPERANDS
};

/* Strides of an operand, in elements: 0 where it is broadcast. Rows are queries or keys; columns are what is summed,
 * the elements of a value, or for the mask the keys. */
typedef struct ln_attention_matrix {
    int64_t batch[LN_MAX_RANK], row, column;
} ln_attention_matrix;

typedef struct ln_attention_view {
    int64_t m, n, past, depth, size; /* n: keys of this call; past: keys before them */
    int64_t matrices;                /* independent attentions: the product of the leading dimensions of y */
    int n_batch;
    int64_t dims[LN_MAX_RANK]; /* the leading dimensions of y */
    ln_attention_matrix operand[LN_ATTENTION_OPERANDS], y;
    double scale;
} ln_attention_view;

/* Consecutive keys of one operand: the past, or those of this call. */
typedef struct ln_attention_part {
    int key, value;   /* operands */
    int64_t count;    /* keys that count */
    int64_t slot;     /* the place of the first one along the last dimension of the mask */
    int64_t position; /* its position among the keys that count */
} ln_attention_part;

/* Whether the call has this operand. */
static inline bool ln_attention_has(const ln_call *call, int operand) {
    return operand < call->n_inputs && call->inputs[operand].dtype != LINNET_NONE;
}
/* Shapes must be known and must have passed the shape rule. */
void ln_attention_view_of(const ln_call *call, ln_attention_view *view);
/* The offset, in elements, of matrix number `matrix` of y in an operand. */
int64_t ln_attention_offset(const ln_attention_view *view, const ln_attention_matrix *operand, int64_t matrix);
/* The parts of the keys of one matrix, in order. Returns their number, at most 2, or -1 if a length is out of range;
 * the error is then reported. */
int ln_attention_parts(const ln_call *call, const ln_attention_view *view, const ln_buffers *b, int64_t matrix,
                       ln_attention_part parts[2]);
/* The positions [*low, *high) that query `row` sees if `total` keys count. */
void ln_attention_visible(const ln_attention_attributes *a, int64_t m, int64_t total, int64_t row, int64_t *low,
                          int64_t *high);

#endif
