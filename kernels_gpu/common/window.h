/* window.h - the windows of conv, conv_transpose, pool and their gradients. They always have three spatial dimensions;
 * dimensions that the op does not have get size 1. */
#ifndef LG_WINDOW_H
#define LG_WINDOW_H

#include "kernels_gpu/common/gpu.h"

typedef struct lg_window {
    bool last;               /* the op's channels are the last axis of x and y, not axis 1 */
    bool x_last, y_last;     /* the channels of x (of y) are innermost in memory */
    int64_t batch, channels; /* batch, and channels of x */
    int64_t out_channels;    /* channels of y */
    int64_t in[LG_SPACE], out[LG_SPACE], kernel[LG_SPACE], stride[LG_SPACE], dilation[LG_SPACE], pad[LG_SPACE];
    int64_t x_c, x_x, y_c, y_x; /* strides of x and y in elements: from a channel (c), from a column (x), to the next */
} lg_window;

/* Reads the window of a step. `kernel` has one size of the window for each spatial axis. `turned` is for
 * conv_transpose, whose padding belongs to y. Returns false if there are more than three spatial dimensions, or if a
 * size does not fit 31 bits. */
bool lg_window_open(lg_window *out, const lg_step *s, const linnet_device_tensor *x, const linnet_device_tensor *y,
                    const int64_t *kernel, bool turned);
/* Passes LG_SPACE integers, one for each spatial dimension. */
void lg_pass_space(lg_launch *launch, const int64_t *values);
/* Adds a launch that sums partial results and stores the sums in output 0. `parts` partial results of `count` f32
 * elements each lie at the beginning of scratch memory, which this function reserves. */
void lg_add_sum_parts(const lg_step *s, lg_plan *plan, int64_t parts, int64_t count);

#endif
