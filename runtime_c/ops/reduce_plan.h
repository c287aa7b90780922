/* reduce_plan.h - shared by the shape rule and the kernels of `reduce`: the reduced axes, and the plan of the fast
 * kernels. The axes come from the attribute or from the second input. */
#ifndef LN_OPS_REDUCE_PLAN_H
#define LN_OPS_REDUCE_PLAN_H

#include "kernel/kernel.h"

/* Sets *mask: bit d is set if dimension d of input 0 is reduced. Returns false if the axes are not known yet. Sets *bad
   if an axis is out of range. */
bool ln_reduce_mask(const ln_reduce_attributes *a, const ln_tensor *inputs, int n_inputs, uint32_t *mask, bool *bad);

/* A reduction as the fast kernels see it. Kept dims are in memory order. Reduced dims are in logical order, which is
   the order of summation (lane_sum.h) in every layout; those of extremes and of integers are in memory order. Kept dims
   that are adjacent in memory are merged, and so are reduced dims. Names with _x and _y are strides in x and y. */
typedef struct ln_reduce_plan {
    int kept, reduced;
    int64_t kept_dims[LN_MAX_RANK], kept_x[LN_MAX_RANK], kept_y[LN_MAX_RANK];
    int64_t reduced_dims[LN_MAX_RANK], reduced_x[LN_MAX_RANK]; /* at least one dim, of size 1 by default */
    int64_t count;                                             /* reduced elements per result */
    bool columns; /* `inner` adjacent results are computed together, row by row; false: one result at a time */
    int64_t inner, inner_y;
    int64_t block, blocks; /* columns of one work item, and the number of such blocks in `inner` */
    float scale, factor;   /* quantized x: what the result, or each element, is multiplied by */
    int32_t zero;          /* quantized x: the zero point, which is subtracted */
    bool stored;           /* maxima and minima are taken of stored integers, which f32 holds exactly */
} ln_reduce_plan;

/* Makes *plan. Returns false if no fast kernel supports the call. Allocates nothing, so `can` may call this. */
bool ln_reduce_make_plan(const ln_call *call, ln_reduce_plan *plan);

/* Returns the result of a float reduction, given `total`, the sum or the extreme of `count` elements. */
double ln_reduce_result(int64_t kind, double total, float scale, int64_t count);

#endif
