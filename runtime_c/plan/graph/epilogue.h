/* epilogue.h - tells which map can be applied to the tiles of a heavy op's result, and makes the node that computes
   both. */
#ifndef LN_PLAN_EPILOGUE_H
#define LN_PLAN_EPILOGUE_H

#include "plan/graph/work.h"

/* Returns the op whose result the map may take as its input `tile`, if both ran on `place`. `makers` is from
 * ln_find_makers, `at` the position of the map. NULL: none. */
ln_work_node *ln_epilogue_op(const ln_work *w, const int32_t *makers, const ln_work_node *map, int32_t at, int tile,
                             uint8_t place);
/* Makes the node that computes the op and the map. The node is not in the graph. *out is NULL if the shapes do not fit.
 * layout: dense leaves the values as they are; channels-last gives them the layout that they would have on the CPU. The
 * caller has to ask whether a kernel can run the node. */
linnet_status ln_epilogue_node(ln_work *w, const ln_work_node *op, const ln_work_node *map, int tile, int layout,
                               ln_work_node **out);

/* Computes how much time the CPU saves if the map at position `at` is the epilogue of the op before it. *op becomes the
 * position of this op, and *saved is 0 if nothing is saved. Pairs of which neither node has a cost of at least 0 in
 * `costs` are left out. last[value]: the CPU would keep the value channels-last. */
linnet_status ln_epilogue_saving(ln_work *w, const int32_t *makers, const double *costs, const bool *last, int32_t at,
                                 int32_t *op, double *saved);

#endif
