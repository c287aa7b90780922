/* expand.h - inlining of functions into the working graph, for expand.c and infer_pass.c.
 * Control flow whose decision is known becomes plain nodes. */
#ifndef LN_EXPAND_H
#define LN_EXPAND_H

#include "core/work.h"

/* Adds a work value for every value of the function; the first gets index *base. */
linnet_status ln_expand_values(ln_work *w, const ln_function *f, int32_t *base);
/* Appends the function's needed nodes; needed: one flag per value of the function. */
linnet_status ln_expand_nodes(ln_work *w, const ln_function *f, int32_t base, bool *needed);
/* Appends the nodes of `function`, called by `node` with its inputs from number first_input on. */
linnet_status ln_inline(ln_work *w, int64_t function, const ln_work_node *node, int first_input);
/* Appends the iterations of a `while` node, and the rest of it as a waiting node where a condition must be computed. */
linnet_status ln_unroll(ln_work *w, ln_work_node *node);
/* body.c: a `while` as one node whose body is planned once, where the shapes of carried values stay; else unrolled. */
linnet_status ln_loop(ln_work *w, ln_work_node *node);
/* body.c: inside a body, an `if` whose branches give the same shapes as one node; else it waits. */
linnet_status ln_branch(ln_work *w, ln_work_node *node, bool *done);
/* Whether running the function changes a variable. */
bool ln_function_assigns(const linnet_model *model, int64_t function);
/* Whether the node changes a variable, itself or in a function that it calls. */
bool ln_node_assigns(const linnet_model *model, const ln_node *node);

#endif
