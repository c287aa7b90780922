/* resize.h - resize resolved to one table of taps per axis: the inputs of each output coordinate and their weights.
 * The reference and the fast kernels read the same tables, so their results are equal. */
#ifndef LN_RESIZE_H
#define LN_RESIZE_H

#include "kernel/kernel.h"

/* One axis. The index of a tap is already clamped to the input; `outside` marks outputs that take the extrapolation
 * value (tf_crop_and_resize only, else NULL). An axis that is only copied has taps == 0. */
typedef struct ln_resize_axis {
    int64_t in, out;
    int taps;
    const int32_t *index; /* out * taps */
    const float *weight;  /* out * taps */
    const uint8_t *outside;
} ln_resize_axis;

/* The order of evaluation is part of the contract: the last axis is interpolated first, taps in ascending order, and
 * products and sums are rounded one by one (no FMA). Integer results are therefore the same everywhere. Linear
 * interpolation over several axes is `joint`, as in ONNX Runtime: the weights of a corner are multiplied first, from
 * the last axis on, and corners are added in row-major order. */
typedef struct ln_resize_tables {
    bool joint; /* every active axis has two taps */
    int n_active;
    int active[LN_MAX_RANK]; /* the axes of x that have taps, ascending */
    ln_resize_axis axis[LN_MAX_RANK];
} ln_resize_tables;

/* Whether the tables can be made now: scales, sizes and (if used) roi are known. */
bool ln_resize_known(const ln_call *call);
/* Bit i: axis i of x has taps (known calls only). */
unsigned ln_resize_active(const ln_call *call);
linnet_status ln_resize_prepare(ln_call *call, ln_resize_tables *tables);

/* A call as the SIMD kernels see it. In the rows kernel, the last resized axis (`inner`) steps over groups of `width`
   contiguous elements that are not resized (all channels of a pixel, or 1). Rows are interpolated along this axis
   first, then combined. The channels kernel takes all other calls: `inner` has stride 1 and is not resized, and vectors
   run along it. */
typedef struct ln_resize_outer {
    int64_t out, x_stride, y_stride;
    int slot; /* number of the resized axis, or -1: copied */
} ln_resize_outer;

typedef struct ln_resize_plan {
    ln_resize_tables tables;
    int inner, n_outer;
    int64_t width; /* rows kernel */
    ln_resize_outer outer[LN_MAX_RANK];
    ln_resize_axis slot[3];    /* resized outer axes, right-aligned; missing axes in front have one tap of weight 1 */
    const float *left, *right; /* weights of the first and second taps, for joint interpolation of single elements */
    int64_t kept;              /* rows kernel: number of floats of a row that is kept */
} ln_resize_plan;

bool ln_resize_channels_can(const ln_call *call);
bool ln_resize_rows_can(const ln_call *call);
void ln_resize_channels_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
void ln_resize_rows_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
linnet_status ln_resize_channels_configure(ln_call *call);
linnet_status ln_resize_rows_configure(ln_call *call);

#endif
