/* body.h - loops and branches that are one node. */
#ifndef LN_PLAN_COMPILE_BODY_H
#define LN_PLAN_COMPILE_BODY_H

#include "plan/graph/work.h"

/* Turns a `while` into one node whose body is planned once if the shapes of the carried values do not change;
 * otherwise unrolls it. */
linnet_status ln_loop(ln_work *w, ln_work_node *node);
/* Turns an `if` whose branches return the same shapes into one node, and sets *done. Any other `if` waits until a run
 * has computed its condition. */
linnet_status ln_branch(ln_work *w, ln_work_node *node, bool *done);

#endif
