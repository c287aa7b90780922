/* call.h - the call of a node, and the kernel that would run it. */
#ifndef LN_PLAN_GRAPH_CALL_H
#define LN_PLAN_GRAPH_CALL_H

#include "plan/graph/work.h"

/* Makes the call of a node, in memory of `pool`. */
linnet_status ln_node_call(ln_work *w, const ln_work_node *node, ln_pool *pool, ln_call *call);
/* Makes the call in the same way, but with `tensors` as its ln_call_tensors(node) tensors: the inputs, the op's own
 * result if the node has a map, and the outputs. */
linnet_status ln_node_call_in(ln_work *w, const ln_work_node *node, ln_pool *pool, ln_tensor *tensors, ln_call *call);
int64_t ln_call_tensors(const ln_work_node *node);
/* Returns the kernel that would run the call; NULL: none can. */
const ln_kernel *ln_node_kernel(const ln_work *w, const ln_call *call, double *ns);
/* Computes the modelled nanoseconds of the node with its best kernel, on one thread. The operands are dense or, if the
 * op prefers it and `layout` says so, channels-last. INFINITY: no kernel can compute the node. */
linnet_status ln_node_cost(ln_work *w, const ln_work_node *node, int layout, double *ns);

/* Returns how long a step of the CPU takes on as many threads as it would get, if it takes `ns` on one. */
double ln_on_threads(const ln_work *w, double ns);

/* Returns the iterations that are assumed for a loop when times are modelled: its bound, if the tensor has its value;
 * else 1. */
int64_t ln_trips(const ln_tensor *bound);

/* Tells whether the op computes, and an operand is f16 or bf16. Other ops move or convert elements of any dtype. */
bool ln_computes_half(const ln_work *w, const ln_work_node *node);
/* Sets *wide to whether the CPU should run such a node in f32 between casts, because only this form has a fast
 * kernel. */
linnet_status ln_runs_in_f32(ln_work *w, const ln_work_node *node, bool *wide);

#endif
