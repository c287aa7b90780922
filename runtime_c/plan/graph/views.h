/* views.h - copies whose outputs are parts of their operand's memory. */
#ifndef LN_PLAN_GRAPH_VIEWS_H
#define LN_PLAN_GRAPH_VIEWS_H

#include "plan/graph/work.h"

/* Tells whether every output of the node can be a part of its first operand's memory. */
bool ln_is_view(const ln_work *w, const ln_work_node *node);
/* Returns the offset in bytes of output o of a copy in the memory of input 0; -1: the output is no part of this memory.
 */
int64_t ln_view_offset(const ln_work *w, const ln_work_node *node, int o);
bool ln_same_strides(const ln_tensor *a, const ln_tensor *b);

#endif
