/* product.h - shared by the kernels of conv, conv_transpose and matmul: the dtypes of products and sums, and zero
 * points. */
#ifndef LG_PRODUCT_H
#define LG_PRODUCT_H

#include "kernels_gpu/common/gpu.h"

/* Tells whether kernels can multiply operands 0 and 1 of these dtypes, add operand 2 and store the result. */
bool lg_can_multiply(const lg_step *s);
/* Defines the operands X, W, B and Y, and BIAS, FLOATS, X_ZERO and W_ZERO(channel), which reads packed memory; then
 * appends product.inc. Call this after the kernel's own arguments are passed. */
void lg_define_product(lg_plan *plan, lg_launch *launch, const lg_step *s);
/* Defines NAME(i), the offset in elements of the matrix of operand `t` that belongs to matrix i of the result y. The
 * operand has `outer` axes in front of its matrices, and its axes of size 1 are broadcast. The function passes sizes as
 * numbers, so call it after the kernel's own arguments are passed. */
void lg_put_batch(lg_launch *launch, const char *name, const linnet_device_tensor *t, int outer,
                  const linnet_device_tensor *y, int y_outer);

#endif
