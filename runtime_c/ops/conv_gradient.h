/* conv_gradient.h - what the kernels of conv_gradient share: its window, which is that of the convolution, and the
 * split of its long sums. */
#ifndef LN_CONV_GRADIENT_H
#define LN_CONV_GRADIENT_H

#include "ops/window.h"

/* The window of the convolution whose input is x and the gradient of whose output is g. */
linnet_status ln_window_conv_gradient(const ln_conv_gradient_attributes *a, const ln_tensor *x, const ln_tensor *g,
                                      ln_window *w, linnet_error *error);

#endif
