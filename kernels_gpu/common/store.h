/* store.h - writes the text with which a kernel stores its result: the conversion of a sum, an epilogue, a map. */
#ifndef LG_STORE_H
#define LG_STORE_H

#include "kernels_gpu/common/gpu.h"

/* Defines two macros. LG_STORE(value, at, channel) stores the op's result at element `at` of the output, which is the
 * kernel's parameter y. `value` is a float for float results and an integer for integer results. For quantized results,
 * `value` is the sum of the products, and LG_STORE converts it. LG_EXTRAS declares the parameters that LG_STORE needs;
 * the text begins with a comma. Only the kernel function itself may use LG_STORE. This function also passes the
 * arguments for LG_EXTRAS, so call it after the kernel's own arguments are passed. */
void lg_put_store(lg_plan *plan, lg_launch *launch, const lg_step *s);
/* Tells whether lg_put_store supports the step. The `can` of a kernel that calls lg_put_store must check this. */
bool lg_can_store(const lg_step *s);

#endif
