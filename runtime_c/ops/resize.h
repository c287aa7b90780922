/* resize.h - resize resolved to one table of taps per axis: the inputs of each output coordinate and their weights.
 * The reference and the fast kernels read the same tables, so their results are equal. */
#ifndef LN_RESIZE_H
#define LN_RESIZE_H

#include "kernel/kernel.h"

/* One axis. Indices of taps are already clamped to the input. `outside` marks outputs that take the extrapolation
 * value; it is NULL unless the mode is tf_crop_and_resize. An axis that is only copied has taps == 0. */
typedef struct ln_resize_axis {
    int64_t in, out;
    int taps;
    const int32_t *index; /* [out][taps] */
    const float *weight;  /* [out][taps] */
    const uint8_t *outside;
} ln_resize_axis;

/* The tables of a call. The order of evaluation is part of the contract. The last axis is interpolated first, taps in
 * ascending order, and each product and each sum is rounded (no FMA). Integer results are therefore the same
 * everywhere. Linear interpolation over several axes is `joint`, as in ONNX Runtime: the weights of each corner are
 * multiplied first, from the last axis on, and then the weighted corners are added in row-major order. */
typedef struct ln_resize_tables {
    bool joint; /* every active axis has two taps */
    int n_active;
    int active[LN_MAX_RANK]; /* the axes of x that have taps, ascending */
    ln_resize_axis axis[LN_MAX_RANK];
} ln_resize_tables;

/* Tells whether the tables can be made now: scales, sizes and, if the mode uses it, roi are known. */
bool ln_resize_known(const ln_call *call);
/* Returns a mask: bit i is set if axis i of x has taps. Precondition: ln_resize_known(call). */
unsigned ln_resize_active(const ln_call *call);
/* Makes the tables in memory of the call's plan. Precondition: ln_resize_known(call). Errors: OUT_OF_MEMORY,
 * TOO_LARGE if the tables would be too large, or the error of a bad operand. */
linnet_status ln_resize_prepare(ln_call *call, ln_resize_tables *tables);

#endif
