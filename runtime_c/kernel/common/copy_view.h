/* copy_view.h - copies whose outputs are parts of their input's memory. */
#ifndef LN_COPY_VIEW_H
#define LN_COPY_VIEW_H

#include "kernel/common/copy_kinds.h"

/* Whether result y is a part of the memory of operand x, with the strides of y. *offset: of its first element in x.
 * `before`: number of elements in the earlier results; -1: one of them is absent. */
bool ln_copy_view(const ln_copy_attributes *a, int n_inputs, const ln_tensor *x, const ln_tensor *y, int64_t before,
                  int64_t *offset);

#endif
