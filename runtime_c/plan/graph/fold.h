/* fold.h - values computed at plan time, and how long they are kept.
 * Expanding folds whole graphs, and later passes the conversions of constants. */
#ifndef LN_FOLD_H
#define LN_FOLD_H

#include "plan/graph/work.h"

/* Tells whether the node's operands are known and the budget allows computing it now. If so, the budget is charged. */
bool ln_foldable(ln_work *w, const ln_work_node *node);
/* Folds a reshape of a constant, whose result shares the bytes of the constant. Returns false if the node is not such a
 * reshape. */
bool ln_fold_shared(ln_work *w, const ln_work_node *node);
/* Folds a node `shape`. It reads no data, so its result is known as soon as the shape is known. */
linnet_status ln_fold_shape(ln_work *w, const ln_work_node *node);
/* Adds a scalar with a known value; -1 when out of memory. */
int32_t ln_fold_scalar(ln_work *w, const char *name, int dtype, int64_t number);
/* Allocates memory for a folded value, as blob number *blob; NULL when out of memory. */
void *ln_fold_memory(ln_work *w, uint64_t bytes, int32_t *blob);
/* Turns the value into a constant: computes op(inputs) into a blob with the strides of the value's tensor. */
linnet_status ln_work_fold(ln_work *w, const ln_op *op, const void *attributes, int n_inputs, const int32_t *inputs,
                           int n_outputs, const int32_t *outputs);
/* Call this when one reader of the value is done. After the last reader, the memory of a folded value is freed. */
void ln_work_release(ln_work *w, int32_t value);
/* Frees the memory of a folded value that has no readers. */
void ln_work_unread(ln_work *w, int32_t value);

#endif
