/* resize.h - resize resolved to one table of taps per axis: which inputs make each output coordinate, with which
 * weights. Used by the reference and by the fast kernels; results are equal because both read the same tables. */
#ifndef LN_RESIZE_H
#define LN_RESIZE_H

#include "core/kernel.h"

/* One axis. A tap's index is already clamped to the input; `outside` marks outputs that take the extrapolation value
 * (tf_crop_and_resize only, else NULL). An axis that is copied through has taps == 0. */
typedef struct ln_resize_axis {
    int64_t in, out;
    int taps;
    const int32_t *index; /* out * taps */
    const float *weight;  /* out * taps */
    const uint8_t *outside;
} ln_resize_axis;

/* The order of evaluation is part of the contract: the last axis is interpolated first, taps in ascending order,
 * products and sums rounded one by one (no FMA). So integer results are the same everywhere. Linear interpolation of
 * several axes is `joint`, as ONNX Runtime's: the weights of a corner are multiplied first, from the last axis on, and
 * corners are added in row-major order. */
typedef struct ln_resize_tables {
    bool joint; /* every active axis has two taps */
    int n_active;
    int active[LN_MAX_RANK]; /* which axes of x have taps, ascending */
    ln_resize_axis axis[LN_MAX_RANK];
} ln_resize_tables;

/* Whether the tables can be made now: scales, sizes and (if used) roi are known. */
bool ln_resize_known(const ln_call *call);
/* Bit i: axis i of x has taps (known calls only). */
unsigned ln_resize_active(const ln_call *call);
linnet_status ln_resize_prepare(ln_call *call, ln_resize_tables *tables);

/* A call as the SIMD kernels see it. Rows kernel: the last resized axis (`inner`) steps over groups of `width`
 * contiguous elements that are not resized (all channels of a pixel, or 1); rows are interpolated along it first, then
 * combined. Channels kernel, for what is left: `inner` has stride 1 and is not resized, vectors run along it. */
typedef struct ln_resize_outer {
    int64_t out, x_stride, y_stride;
    int slot; /* of the resized axes, or -1: copied through */
} ln_resize_outer;

typedef struct ln_resize_plan {
    ln_resize_tables tables;
    int inner, n_outer;
    int64_t width; /* rows kernel */
    ln_resize_outer outer[LN_MAX_RANK];
    ln_resize_axis slot[3];    /* resized outer axes, right-aligned; filled up in front with one tap of weight 1 */
    const float *left, *right; /* rows kernel of single elements, joint: the weights of the first and second taps */
    int64_t kept;              /* rows kernel: floats of a row that is kept */
} ln_resize_plan;

bool ln_resize_channels_supports(const ln_call *call);
bool ln_resize_rows_supports(const ln_call *call);
linnet_status ln_resize_channels_configure(ln_call *call);
linnet_status ln_resize_rows_configure(ln_call *call);

#endif
