/* conv_gradient.h - shared by the kernels of conv_gradient: its window, which is the window of the convolution, and the
 * split of its long sums. */
#ifndef LN_CONV_GRADIENT_H
#define LN_CONV_GRADIENT_H

#include "kernel/common/window.h"

/* The window of the convolution with input x and output gradient g. */
linnet_status ln_window_conv_gradient(const ln_conv_gradient_attributes *a, const ln_tensor *x, const ln_tensor *g,
                                      ln_window *w, linnet_error *error);

#endif
