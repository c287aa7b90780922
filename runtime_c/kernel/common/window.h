/* window.h - the geometry shared by conv, conv_transpose and pool: three spatial axes, attributes resolved.
 * Missing axes are added in front with size 1, so that kernels always loop over z, y and x. */
#ifndef LN_WINDOW_H
#define LN_WINDOW_H

#include "kernel/kernel.h"

#define LN_SPATIAL 3

/* Sizes are -1 while they are unknown (shape rules only). */
typedef struct ln_window {
    int n_spatial;    /* 1 to 3: the number of real axes */
    int channel_axis; /* in [1, rank) */
    int64_t batch, in_channels, out_channels, group;
    int64_t in[LN_SPATIAL], out[LN_SPATIAL];
    int64_t kernel[LN_SPATIAL], stride[LN_SPATIAL], dilation[LN_SPATIAL];
    int64_t pad_begin[LN_SPATIAL], pad_end[LN_SPATIAL];
} ln_window;

/* Resolves the attributes and operand shapes. The shape rules use these too, so y is not needed. x must have a known
 * rank. */
linnet_status ln_window_conv(const ln_conv_attributes *a, const ln_tensor *x, const ln_tensor *w, ln_window *out,
                             linnet_error *error);
linnet_status ln_window_conv_transpose(const ln_conv_transpose_attributes *a, const ln_tensor *x, const ln_tensor *w,
                                       ln_window *out, linnet_error *error);
linnet_status ln_window_pool(const ln_pool_attributes *a, const ln_tensor *x, ln_window *out, linnet_error *error);
/* Sets rank and dims of y from the window. */
void ln_window_shape(const ln_window *w, ln_tensor *y);

/* Strides of a tensor in the order batch, channel, z, y, x (activations) or out, in, z, y, x (weights, with
 * channel_axis 1). Added axes have stride 0. */
typedef struct ln_window_strides {
    int64_t n, c, s[LN_SPATIAL];
} ln_window_strides;
ln_window_strides ln_window_strides_of(const ln_tensor *t, int channel_axis);

/* The number of output positions (z * y * x), and of kernel taps. */
static inline int64_t ln_window_positions(const ln_window *w) { return w->out[0] * w->out[1] * w->out[2]; }
static inline int64_t ln_window_taps(const ln_window *w) { return w->kernel[0] * w->kernel[1] * w->kernel[2]; }
/* The taps [*begin, *end) of one axis that are inside the input for output position o. */
void ln_window_valid(const ln_window *w, int axis, int64_t o, int64_t *begin, int64_t *end);

/* Number of taps of one axis inside the padded input. count_include_pad counts these; ceil_mode does not add to them.
 */
static inline int64_t ln_window_padded(const ln_window *w, int axis, int64_t o) {
    int64_t room = w->in[axis] + w->pad_begin[axis] + w->pad_end[axis] - o * w->stride[axis];
    return room <= 0 ? 0 : ln_min(w->kernel[axis], (room - 1) / w->dilation[axis] + 1);
}

#endif
