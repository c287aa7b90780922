/* fold.h - values computed while planning, and how long they are kept. For the passes that run before the layout:
 * expand.c, infer_pass.c, loop.c, segment.c. */
#ifndef LN_FOLD_H
#define LN_FOLD_H

#include "core/work.h"

/* Whether the node's operands are known and the budget allows computing it now, which is then charged. */
bool ln_foldable(ln_work *w, const ln_work_node *node);
/* A reshape of a constant is the same bytes under other dims: false when the node is none. */
bool ln_fold_shared(ln_work *w, const ln_work_node *node);
/* `shape` reads no data: its result is written here and now. */
linnet_status ln_fold_shape(ln_work *w, const ln_work_node *node);
/* A scalar that is known; -1 when out of memory. */
int32_t ln_fold_scalar(ln_work *w, const char *name, int dtype, int64_t number);
/* Memory for a folded value, entered as number *blob; NULL when there is none. */
void *ln_fold_memory(ln_work *w, uint64_t bytes, int32_t *blob);
/* Gives it back, unless a program took it over. */
void ln_fold_free(ln_work *w, ln_blob *blob);
/* One of the value's readers has been seen to. After the last, memory that it was folded into is given back. */
void ln_work_release(ln_work *w, int32_t value);
/* The same for a value that nobody was to read. */
void ln_work_unread(ln_work *w, int32_t value);

#endif
