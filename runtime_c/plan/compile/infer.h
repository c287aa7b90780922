/* infer.h - infers the shapes of nodes without control flow, folds nodes, and lets nodes wait for data. */
#ifndef LN_PLAN_COMPILE_INFER_H
#define LN_PLAN_COMPILE_INFER_H

#include "plan/graph/work.h"

/* Appends a node without control flow. The node becomes ready, is folded, or waits. */
linnet_status ln_infer_node(ln_work *w, ln_work_node *node);
/* Appends a node that needs the values of its operands. Fails if no run will know them. */
linnet_status ln_wait_for_values(ln_work *w, ln_work_node *node);

#endif
