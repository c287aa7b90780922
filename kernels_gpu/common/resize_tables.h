/* resize_tables.h - resize resolved to a table of taps per axis, as on the CPU (runtime_c/ops/resize.c). */
#ifndef LG_RESIZE_TABLES_H
#define LG_RESIZE_TABLES_H

#include "kernels_gpu/common/gpu.h"

enum { LG_MOST_ACTIVE = 3 /* axes that are resampled */ };

/* One axis that is resampled. Each output coordinate has `taps` inputs, whose places are clamped to the input, and
 * their weights. */
typedef struct lg_resize_axis {
    int axis;
    int64_t in, out;
    int taps;
    int32_t *index; /* out * taps */
    float *weight;
    bool *outside; /* of the input: NULL unless the op crops */
} lg_resize_axis;

typedef struct lg_resize {
    bool joint; /* linear interpolation along several axes at once */
    int n;
    lg_resize_axis axes[LG_MOST_ACTIVE]; /* ascending */
} lg_resize;

/* Reads the step, without tables. False: sizes, scales or the region are not known, or too many axes are resampled. */
bool lg_resize_open(lg_resize *out, const lg_step *s);
/* Makes the tables. False: there is no memory. lg_resize_free frees them in both cases. */
bool lg_resize_fill(lg_resize *r, const lg_step *s);
void lg_resize_free(lg_resize *r);

#endif
