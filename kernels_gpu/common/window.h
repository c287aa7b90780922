/* window.h - the windows of conv, conv_transpose, pool and their gradients in three spatial dimensions; missing ones
 * have size 1. */
#ifndef LG_WINDOW_H
#define LG_WINDOW_H

#include "kernels_gpu/common/gpu.h"

typedef struct lg_window {
    bool last;               /* channels are the last axis */
    int64_t batch, channels; /* of x */
    int64_t out_channels;    /* of y */
    int64_t in[LG_SPACE], out[LG_SPACE], kernel[LG_SPACE], stride[LG_SPACE], dilation[LG_SPACE], pad[LG_SPACE];
    int64_t x_c, x_x, y_c, y_x; /* elements from a channel, or a column, to the next */
} lg_window;

/* Reads the window of a step from x to y. `kernel` has its spatial sizes, one for each spatial axis. `turned`:
 * conv_transpose, whose padding is that of y. False: there are more than three spatial dimensions, or sizes do not fit
 * 31 bits. */
bool lg_window_open(lg_window *out, const lg_step *s, const linnet_device_tensor *x, const linnet_device_tensor *y,
                    const int64_t *kernel, bool turned);
/* Passes the sizes of an array. */
void lg_pass_space(lg_launch *launch, const int64_t *values);
/* A launch that adds `parts` partial sums of `count` elements, f32 at the start of scratch memory, to output 0. It
 * reserves the scratch. */
void lg_add_sum_parts(const lg_step *s, lg_plan *plan, int64_t parts, int64_t count);

#endif
