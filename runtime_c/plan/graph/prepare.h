/* prepare.h - chooses the kernel of a node, and finds its time and its number of threads. */
#ifndef LN_PLAN_GRAPH_PREPARE_H
#define LN_PLAN_GRAPH_PREPARE_H

#include "plan/graph/work.h"

/* Chooses the kernel of the node's call. The kernel's `configure` then fills in its fields of the call. *ns becomes the
 * kernel's modelled time on one thread. */
linnet_status ln_node_prepare(ln_work *w, const ln_work_node *node, ln_call *call, const ln_kernel **out, double *ns);
/* Returns the number of threads for which the modelled time is least, as far as the kernel's items can be divided. */
int ln_phase_threads(const ln_call *call, int phase, double ns);
/* Computes the modelled nanoseconds of the node on one thread, and on the threads that it would use if it ran alone on
 * `machine`. The layouts of its operands must be final. */
linnet_status ln_node_times(ln_work *w, const ln_work_node *node, const struct ln_machine *machine, double ns[2]);

#endif
