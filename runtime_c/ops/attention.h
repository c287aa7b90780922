/* attention.h - the operands of an attention as matrices, and which keys a query sees. The shape rule, the reference
 * and the fast kernels share these functions. */
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

/* The strides of an operand, in elements; 0 where the operand is broadcast. Rows are queries or keys. Columns are the
 * elements of a query, key or value; the columns of the mask are the keys. */
typedef struct ln_attention_matrix {
    int64_t batch[LN_MAX_RANK], row, column;
} ln_attention_matrix;

/* m: queries; n: keys of this call; past: keys of the cache, which come before them; depth: elements of a query or key;
 * size: elements of a value. */
typedef struct ln_attention_view {
    int64_t m, n, past, depth, size;
    int64_t matrices; /* independent attentions: the product of the leading dimensions of y */
    int n_batch;
    int64_t dims[LN_MAX_RANK]; /* the leading dimensions of y */
    ln_attention_matrix operand[LN_ATTENTION_OPERANDS], y;
    double scale;
} ln_attention_view;

/* Consecutive keys in one operand: the past keys, or the keys of this call. */
typedef struct ln_attention_part {
    int key, value;   /* numbers of the two operands */
    int64_t count;    /* number of keys that count; the operand may have more keys, which the operand `lengths`
                         excludes */
    int64_t slot;     /* where the first key is along the last dimension of the mask */
    int64_t position; /* the position of the first key among all keys that count */
} ln_attention_part;

/* Tells whether the call has this operand. */
static inline bool ln_attention_has(const ln_call *call, int operand) {
    return operand < call->n_inputs && call->inputs[operand].dtype != LINNET_NONE;
}
/* Fills *view. The shapes of the call must be known and must have passed the shape rule. */
void ln_attention_view_of(const ln_call *call, ln_attention_view *view);
/* Returns the offset, in elements, of the operand's matrix that belongs to matrix number `matrix` of y. */
int64_t ln_attention_offset(const ln_attention_view *view, const ln_attention_matrix *operand, int64_t matrix);
/* Sets `parts` to the parts of the keys of one matrix, in order. Returns the number of parts, at most 2. Returns -1 if
 * a length is out of range, after it has reported the error (ln_index_error). */
int ln_attention_parts(const ln_call *call, const ln_attention_view *view, const ln_buffers *b, int64_t matrix,
                       ln_attention_part parts[2]);
/* Sets [*low, *high) to the positions that query `row` of m sees if `total` keys count. */
void ln_attention_visible(const ln_attention_attributes *a, int64_t m, int64_t total, int64_t row, int64_t *low,
                          int64_t *high);

#endif
