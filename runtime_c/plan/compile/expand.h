/* expand.h - turns functions into nodes of the working graph. It calls itself for functions within functions. Control
 * flow becomes plain nodes if its condition is known at plan time. */
#ifndef LN_EXPAND_H
#define LN_EXPAND_H

#include "plan/graph/work.h"

/* Turns the requested signature's function into values and nodes, with the shapes of its plan's config bound. */
linnet_status ln_pass_expand(ln_work *w);
/* Expands the nodes that have waited for data, in a graph that holds no others. */
linnet_status ln_pass_resume(ln_work *w);
/* Adds a work value for every value of the function. *base is the index of the first. */
linnet_status ln_expand_values(ln_work *w, const ln_function *f, int32_t *base);
/* Appends the nodes of the function that are needed. `needed` has one flag per value of the function. */
linnet_status ln_expand_nodes(ln_work *w, const ln_function *f, int32_t base, bool *needed);
/* Appends the nodes of `function`, which `node` calls with its inputs from number first_input on. */
linnet_status ln_inline(ln_work *w, int64_t function, const ln_work_node *node, int first_input);
/* Tells whether running the function changes a variable. */
bool ln_function_assigns(const linnet_model *model, int64_t function);
/* Tells whether the node changes a variable, itself or in a function that it calls. */
bool ln_node_assigns(const linnet_model *model, const ln_node *node);

#endif
