/* resize_tables.h - the op resize as a table of taps (an input place and its weight) for each axis, as on the CPU
 * (runtime_c/ops/resize.c). */
#ifndef LG_RESIZE_TABLES_H
#define LG_RESIZE_TABLES_H

#include "kernels_gpu/common/gpu.h"

enum { LG_MOST_ACTIVE = 3 /* axes that are resampled */ };

/* One axis that is resampled. Each output coordinate has `taps` taps. Their places are clamped to the range of the
 * input.
 */
typedef struct lg_resize_axis {
    int axis;
    int64_t in, out;
    int taps;
    int32_t *index; /* [out][taps]: the place of each tap in the input */
    float *weight;
    bool *outside; /* [out]: whether the output coordinate lies outside the input; NULL unless the op crops */
} lg_resize_axis;

typedef struct lg_resize {
    bool joint; /* linear interpolation along several axes at once */
    int n;
    lg_resize_axis axes[LG_MOST_ACTIVE]; /* ascending */
} lg_resize;

/* Reads the step, but makes no tables. Returns false if sizes, scales or the region are not known when the step is
 * planned, if too many axes are resampled, or if the tables would be too large. */
bool lg_resize_open(lg_resize *out, const lg_step *s);
/* Makes the tables; call lg_resize_open before. Returns false if out of memory. The caller calls lg_resize_free in both
 * cases. */
bool lg_resize_fill(lg_resize *r, const lg_step *s);
void lg_resize_free(lg_resize *r);

#endif
