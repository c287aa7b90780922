/* product.h - what conv, conv_transpose and matmul share: the dtypes of products and sums, and zero points. */
#ifndef LG_PRODUCT_H
#define LG_PRODUCT_H

#include "kernels_gpu/common/gpu.h"

/* Whether kernels can multiply the operands 0 and 1, add operand 2 and store the result. */
bool lg_can_multiply(const lg_step *s);
/* Defines X, W, B and Y, BIAS, FLOATS, X_ZERO and W_ZERO(channel), which reads packed memory, and appends product.inc.
 * The kernel's own arguments have been passed. */
void lg_define_product(lg_plan *plan, lg_launch *launch, const lg_step *s);
/* Defines NAME(i), the place of matrix i in an operand with `outer` axes in front of its matrices: axes of size 1 are
 * broadcast to those of the result y. Sizes are arguments, so the kernel's own ones have been passed. */
void lg_put_batch(lg_launch *launch, const char *name, const linnet_device_tensor *t, int outer,
                  const linnet_device_tensor *y, int y_outer);

#endif
