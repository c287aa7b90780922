/* resize.h - resize resolved to one table of taps per axis: which inputs make each output coordinate, with which weights.
 * Used by the reference and by the fast kernels; results are equal because both read the same tables. */
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

/* The order of evaluation is part of the contract: the last axis is interpolated first, taps in ascending order, products
 * and sums rounded one by one (no FMA). So integer results are the same everywhere. */
typedef struct ln_resize_tables {
    int n_active;
    int active[LN_MAX_RANK]; /* which axes of x have taps, ascending */
    ln_resize_axis axis[LN_MAX_RANK];
} ln_resize_tables;

/* Whether the tables can be made now: scales, sizes and (if used) roi are known. */
bool ln_resize_known(const ln_call *call);
linnet_status ln_resize_prepare(ln_call *call, ln_resize_tables *tables);

#endif
