/* body_nodes.h - loops and branches that are one node: what places.c asks of them before it gives one to a device. */
#ifndef LN_PLAN_GRAPH_BODY_NODES_H
#define LN_PLAN_GRAPH_BODY_NODES_H

#include "plan/graph/scopes.h"
#include "plan/graph/work.h"

/* Returns the function of body k of the node. Its values are the first values of the body. */
const ln_function *ln_body_function(const ln_work *w, const ln_work_node *node, int k);
/* Returns the number of values that a loop carries; 0 for a branch. */
int32_t ln_carried(const ln_work_node *node);
/* Returns the iterations that are assumed when times are modelled: the bound of a loop, if planning knows it. At least
 * 1. */
int64_t ln_body_trips(const ln_work *w, const ln_work_node *node);
/* Removes the nodes of bodies that nothing needs, as ln_work_sweep does. Does nothing for other nodes. */
void ln_body_sweep(const ln_work *w, const ln_work_node *node);
/* Tells whether a device could run the node with its bodies: every value in them is computed there or comes through an
 * operand of the node, no shape depends on data, and nothing is assigned. */
bool ln_body_is_whole(const ln_work *w, const ln_work_node *node);
/* Returns the places that the node's hint or scope permits, and sets *hinted to whether it is a hint. A node with
 * bodies that is not hinted by its own name may run where all nodes in them may run as well, or on the CPU if there is
 * no such place. */
ln_places ln_body_places(const ln_work *w, const ln_work_node *node, bool *hinted);
/* Computes the modelled nanoseconds of the node on the CPU, with the threads of the plan and the nodes of its bodies.
 */
linnet_status ln_body_cost(ln_work *w, const ln_work_node *node, double *ns);

#endif
