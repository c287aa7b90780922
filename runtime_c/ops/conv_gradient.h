/* conv_gradient.h - the window of conv_gradient, which is the window of its convolution. The shape rule and the kernels
 * share it. */
#ifndef LN_CONV_GRADIENT_H
#define LN_CONV_GRADIENT_H

#include "kernel/common/window.h"

/* Fills *w with the window of the convolution whose input is x and whose output has the gradient g. x must have a known
 * rank. Errors: those of ln_window_conv, and SHAPE_MISMATCH if g does not have the shape of the output. */
linnet_status ln_window_conv_gradient(const ln_conv_gradient_attributes *a, const ln_tensor *x, const ln_tensor *g,
                                      ln_window *w, linnet_error *error);

#endif
