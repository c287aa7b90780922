/* expand.h - inlining of functions into the working graph, for expand.c and infer_pass.c.
 * Control flow whose decision is known becomes plain nodes. */
#ifndef LN_EXPAND_H
#define LN_EXPAND_H

#include "core/work.h"

/* Appends the nodes of `function`, called by `node` with its inputs from number first_input on. */
linnet_status ln_inline(ln_work *w, int64_t function, const ln_work_node *node, int first_input);
/* Appends the iterations of a `while` node, and the rest of it as a waiting node where a condition must be computed. */
linnet_status ln_unroll(ln_work *w, ln_work_node *node);
/* Whether the node changes a variable, itself or in a function that it calls. */
bool ln_node_assigns(const linnet_model *model, const ln_node *node);

#endif
