/* resize_plan.h - plans the fast kernels of resizes. */
#ifndef LN_FAST_TAIL_RESIZE_PLAN_H
#define LN_FAST_TAIL_RESIZE_PLAN_H

#include "ops/resize.h"

/* There are two SIMD kernels. In the rows kernel, `inner` is the last resized axis; it steps over groups of `width`
   contiguous elements that are not resized (all channels of a pixel, or 1). Rows are first interpolated along this
   axis, then combined. In the channels kernel, `inner` has stride 1 and is not resized, and vectors run along it. An
   outer axis is any other axis. */
typedef struct ln_resize_outer {
    int64_t out, x_stride, y_stride;
    int slot; /* index into ln_resize_plan.slot; -1: the axis is only copied */
} ln_resize_outer;

/* The plan, in call->state. */
typedef struct ln_resize_plan {
    ln_resize_tables tables;
    int inner, n_outer;
    int64_t width; /* rows kernel: elements of a group */
    ln_resize_outer outer[LN_MAX_RANK];
    ln_resize_axis slot[3];    /* resized outer axes, right-aligned; missing axes in front have one tap of weight 1 */
    const float *left, *right; /* weights of the first and second taps, for joint interpolation of single elements */
    int64_t kept;              /* rows kernel: number of floats of a row that is kept */
} ln_resize_plan;

/* `can`, `cost` and `configure` of the two kernels. */
LN_PLANNING bool ln_resize_channels_can(const ln_call *call);
LN_PLANNING bool ln_resize_rows_can(const ln_call *call);
LN_PLANNING void ln_resize_channels_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
LN_PLANNING void ln_resize_rows_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
LN_PLANNING linnet_status ln_resize_channels_configure(ln_call *call);
LN_PLANNING linnet_status ln_resize_rows_configure(ln_call *call);

#endif
