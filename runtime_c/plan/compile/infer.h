/* infer.h - nodes without control flow: shapes, folding, waiting. */
#ifndef LN_PLAN_COMPILE_INFER_H
#define LN_PLAN_COMPILE_INFER_H

#include "plan/graph/work.h"

/* The same for a node without control flow. It becomes ready, is folded, or waits. */
linnet_status ln_infer_node(ln_work *w, ln_work_node *node);
/* Appends a node that needs the values of its operands. Fails if no run will know them. */
linnet_status ln_wait_for_values(ln_work *w, ln_work_node *node);

#endif
