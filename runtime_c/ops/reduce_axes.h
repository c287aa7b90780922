/* reduce_axes.h - what the shape rule and the kernels of `reduce` share.
 * The axes come from the attribute or from the second input. */
#ifndef LN_REDUCE_AXES_H
#define LN_REDUCE_AXES_H

#include "core/kernel.h"

/* Bit d of mask: dimension d of input 0 is reduced. False when that is not known yet, or *bad when an axis is wrong. */
bool ln_reduce_mask(const ln_reduce_attributes *a, const ln_tensor *inputs, int n_inputs, uint32_t *mask, bool *bad);

/* A reduction as the fast kernels see it, neighbouring dims of one class merged: kept dims in the order of memory,
 * reduced dims in logical order, which is the order of summation (lane_sum.h) in every layout. */
typedef struct ln_reduce_plan {
    int kept, reduced;
    int64_t kept_dims[LN_MAX_RANK], kept_x[LN_MAX_RANK], kept_y[LN_MAX_RANK];
    int64_t reduced_dims[LN_MAX_RANK], reduced_x[LN_MAX_RANK]; /* at least one, [1] by default */
    int64_t count;                                             /* reduced elements of one result */
    bool columns; /* rows of `inner` neighbouring results are reduced together; else one result at a time */
    int64_t inner, inner_y;
    int64_t block, blocks; /* columns of one work item, and how often they go into `inner` */
    float scale;           /* of quantized x */
    int32_t zero;
} ln_reduce_plan;

/* False when the kind or the dtype is none of the fast ones. */
bool ln_reduce_make_plan(const ln_call *call, ln_reduce_plan *plan);

/* From the sum, or the extreme, of `count` elements to the result, for floats. */
double ln_reduce_result(int64_t kind, double total, float scale, int64_t count);

#endif
