/* window.h - the geometry that conv, conv_transpose and pool share, with all attributes resolved to numbers.
 * There are always three spatial axes: missing axes are added in front with size 1, so that kernels loop over z, y, x.
 */
#ifndef LN_WINDOW_H
#define LN_WINDOW_H

#include "kernel/kernel.h"

#define LN_SPATIAL 3

/* A size is -1 while it is unknown, which happens only in shape rules. Arrays are in the order z, y, x. */
typedef struct ln_window {
    int n_spatial;    /* 1 to 3: the number of real axes */
    int channel_axis; /* in [1, rank) */
    int64_t batch, in_channels, out_channels, group;
    int64_t in[LN_SPATIAL], out[LN_SPATIAL];
    int64_t kernel[LN_SPATIAL], stride[LN_SPATIAL], dilation[LN_SPATIAL];
    int64_t pad_begin[LN_SPATIAL], pad_end[LN_SPATIAL];
} ln_window;

/* Resolve the attributes and the shapes of the operands, and compute the size of the output. Shape rules and kernels
 * call these functions. x must have a known rank; other dims may be unknown. Errors: BAD_ATTRIBUTE, SHAPE_MISMATCH,
 * TOO_LARGE; *out is then undefined. */
linnet_status ln_window_conv(const ln_conv_attributes *a, const ln_tensor *x, const ln_tensor *w, ln_window *out,
                             linnet_error *error);
linnet_status ln_window_conv_transpose(const ln_conv_transpose_attributes *a, const ln_tensor *x, const ln_tensor *w,
                                       ln_window *out, linnet_error *error);
linnet_status ln_window_pool(const ln_pool_attributes *a, const ln_tensor *x, ln_window *out, linnet_error *error);
/* Sets the rank and the dims of y, the output of the window. */
void ln_window_shape(const ln_window *w, ln_tensor *y);

/* The strides of a tensor by role. For activations: n is the batch, c the channels, s the spatial axes. For weights,
 * with channel_axis 1: n is the output channels, c the input channels, s the taps. Axes that were added have stride 0.
 */
typedef struct ln_window_strides {
    int64_t n, c, s[LN_SPATIAL];
} ln_window_strides;
ln_window_strides ln_window_strides_of(const ln_tensor *t, int channel_axis);

/* Returns the number of output positions of one image, and the number of kernel taps. All sizes must be known. */
static inline int64_t ln_window_positions(const ln_window *w) { return w->out[0] * w->out[1] * w->out[2]; }
static inline int64_t ln_window_taps(const ln_window *w) { return w->kernel[0] * w->kernel[1] * w->kernel[2]; }
/* Sets [*begin, *end) to the taps of one axis that read inside the input for output position o. The range may be empty.
 */
void ln_window_valid(const ln_window *w, int axis, int64_t o, int64_t *begin, int64_t *end);

/* Returns the number of taps of one axis that read inside the padded input for output position o. An average divides by
 * this number if the pool has count_include_pad. Positions that only ceil_mode adds may have fewer taps inside. */
static inline int64_t ln_window_padded(const ln_window *w, int axis, int64_t o) {
    int64_t room = w->in[axis] + w->pad_begin[axis] + w->pad_end[axis] - o * w->stride[axis];
    return room <= 0 ? 0 : ln_min(w->kernel[axis], (room - 1) / w->dilation[axis] + 1);
}

#endif
