/* copy_view.h - tells which copies need not move anything, because their results are parts of the operand's memory. */
#ifndef LN_COPY_VIEW_H
#define LN_COPY_VIEW_H

#include "kernel/common/copy_kinds.h"

/* Tells whether result y is a part of the memory of operand x: the elements of x that y selects lie there with the
 * strides that y already has. If so, *offset becomes the place of the first element of y in x, in elements; otherwise
 * *offset is undefined. `before` is for splits: the number of elements in all earlier results, or -1 if one of them is
 * absent. */
bool ln_copy_view(const ln_copy_attributes *a, int n_inputs, const ln_tensor *x, const ln_tensor *y, int64_t before,
                  int64_t *offset);

#endif
