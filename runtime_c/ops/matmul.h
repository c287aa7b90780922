/* matmul.h - the operands of a matmul as matrices. Transposes, 1-D operands and broadcast batches are resolved to
 * strides. The reference and the packed GEMM use this view. */
#ifndef LN_MATMUL_H
#define LN_MATMUL_H

#include "kernel/kernel.h"

typedef struct ln_matmul_view {
    int64_t m, n, k, batch; /* batch: number of matrix products */
    int n_batch;            /* number of batch dimensions; their sizes and strides are listed from the outermost on */
    int64_t batch_dims[LN_MAX_RANK], a_batch[LN_MAX_RANK], b_batch[LN_MAX_RANK], y_batch[LN_MAX_RANK]; /* strides */
    int64_t a_row, a_column, b_row, b_column, y_row, y_column; /* strides; 0 for a dimension that does not exist */
    int b_axis; /* the axis of operand b along n, which is its quantization axis */
} ln_matmul_view;

/* Fills *view. The shapes of the call must be known and must have passed the shape rule. */
void ln_matmul_view_of(const ln_call *call, ln_matmul_view *view);
/* Sets *a, *b and *y to the offsets of matrix product number `batch` in the operands and the result, in elements. */
void ln_matmul_offsets(const ln_matmul_view *view, int64_t batch, int64_t *a, int64_t *b, int64_t *y);

#endif
