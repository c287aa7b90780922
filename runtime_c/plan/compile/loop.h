/* loop.h - replaces loops by the nodes of their iterations. */
#ifndef LN_PLAN_COMPILE_LOOP_H
#define LN_PLAN_COMPILE_LOOP_H

#include "plan/graph/work.h"

/* Appends the iterations of a `while` node. If a condition must be computed first, the remaining iterations
 * become a waiting node.
 */
linnet_status ln_unroll(ln_work *w, ln_work_node *node);

#endif
