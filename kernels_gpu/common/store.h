/* store.h - how a kernel stores the result of its op: the conversion of a sum, an epilogue, a map. */
#ifndef LG_STORE_H
#define LG_STORE_H

#include "kernels_gpu/common/gpu.h"

/* Writes LG_STORE(value, at, channel), which stores the op's result at element `at` of the output, and LG_EXTRAS, the
 * parameters that a kernel needs for it, which begin with a comma. It also passes the arguments, so the op's own ones
 * are passed before it. `value` is a float for float results, an integer for integers, and the sum of the products for
 * quantized results, which is converted. The kernel's output is the parameter y. In kernels, LG_STORE is used in the
 * kernel function only. */
void lg_put_store(lg_plan *plan, lg_launch *launch, const lg_step *s);
/* Whether lg_put_store can. */
bool lg_can_store(const lg_step *s);

#endif
