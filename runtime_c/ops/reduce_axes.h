/* reduce_axes.h - what the shape rule and the kernels of `reduce` share.
 * The axes come from the attribute or from the second input. */
#ifndef LN_REDUCE_AXES_H
#define LN_REDUCE_AXES_H

#include "core/kernel.h"

/* Bit d of mask: dimension d of input 0 is reduced. False when that is not known yet, or *bad when an axis is wrong. */
bool ln_reduce_mask(const ln_reduce_attributes *a, const ln_tensor *inputs, int n_inputs, uint32_t *mask, bool *bad);

/* A reduction as the fast kernels see it: dims in the order of memory, neighbours of one class merged. The innermost
 * dim has stride 1 and is either reduced (runs) or kept (columns). */
typedef struct ln_reduce_plan {
    int kept, reduced; /* numbers of dims besides the innermost one */
    int64_t kept_dims[LN_MAX_RANK], kept_x[LN_MAX_RANK], kept_y[LN_MAX_RANK];
    int64_t reduced_dims[LN_MAX_RANK], reduced_x[LN_MAX_RANK];
    int64_t reduced_count; /* product of reduced_dims */
    bool columns;
    int64_t inner, inner_y; /* size of the innermost dim, and its stride in y when it is kept */
    int64_t block;          /* columns of one work item */
    int64_t blocks;
    double factor;          /* mean: 1 / n */
    float scale;
    int32_t zero;
} ln_reduce_plan;

/* False when the innermost dim in memory has another stride than 1, or the kind or dtype is none of the fast ones. */
bool ln_reduce_make_plan(const ln_call *call, ln_reduce_plan *plan);

#endif
