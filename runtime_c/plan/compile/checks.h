/* checks.h - the facts that hold between passes. */
#ifndef LN_PLAN_COMPILE_CHECKS_H
#define LN_PLAN_COMPILE_CHECKS_H

#include "plan/graph/work.h"

/* Checks facts, in builds with LN_CHECK_PASSES. `facts` is a bit mask; its bits are in the order of passes.inc. Returns
 * the sentence of the first fact that does not hold, and sets *node to the name of the node or value. Returns NULL if
 * all facts hold. */
const char *ln_broken_fact(const ln_work *w, uint32_t facts, const char **node);

#endif
