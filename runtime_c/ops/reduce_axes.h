/* reduce_axes.h - what the shape rule and the kernels of `reduce` share.
 * The axes come from the attribute or from the second input. */
#ifndef LN_REDUCE_AXES_H
#define LN_REDUCE_AXES_H

#include "core/kernel.h"

/* Bit d of mask: dimension d of input 0 is reduced. False when that is not known yet, or *bad when an axis is wrong. */
bool ln_reduce_mask(const ln_reduce_attributes *a, const ln_tensor *inputs, int n_inputs, uint32_t *mask, bool *bad);

#endif
