/* attributes.h - reads the attributes of nodes from a file. */
#ifndef LN_ATTRIBUTES_H
#define LN_ATTRIBUTES_H

#include "base/flatbuffer.h"
#include "model/graph.h"

/* Reads the op's attribute struct from the Attributes union of a Node table. The struct is allocated in the pool, and
 * its lists point into the structure. `function` is the number of the function that contains the node. A function may
 * only call later functions, so the value of a function attribute must be greater than `function` and less than
 * n_functions. Errors: CORRUPT, BAD_ATTRIBUTE, UNSUPPORTED, OUT_OF_MEMORY. */
linnet_status ln_read_attributes(ln_pool *pool, const ln_op *op, const ln_fb_table *node, int32_t function,
                                 int32_t n_functions, const void **out, linnet_error *error);

/* Returns the op of a Node table. If this build does not know the op, returns NULL, with UNSUPPORTED in `error`. */
const ln_op *ln_read_op(const ln_fb_table *node, linnet_error *error);

/* Stores the numbers of the functions that the node calls, in the order of its attributes. Returns how many there are:
 * 0 for most ops. */
int ln_callees(const ln_node *node, int64_t callees[LN_MOST_CALLEES]);

#endif
