/* control.h - nodes with control flow. */
#ifndef LN_PLAN_COMPILE_CONTROL_H
#define LN_PLAN_COMPILE_CONTROL_H

#include "plan/graph/work.h"

/* Appends the node, or the nodes that it stands for. */
linnet_status ln_expand_node(ln_work *w, ln_work_node *node);

#endif
