/* attributes.h - reads the attributes of nodes from a file. */
#ifndef LN_ATTRIBUTES_H
#define LN_ATTRIBUTES_H

#include "base/flatbuffer.h"
#include "model/graph.h"

/* Reads the op's attribute struct from the Attributes union of a Node table. Lists point into the
 * structure. The value of a function attribute must be greater than `function` and less than n_functions. */
linnet_status ln_read_attributes(ln_pool *pool, const ln_op *op, const ln_fb_table *node, int32_t function,
                                 int32_t n_functions, const void **out, linnet_error *error);

/* The op of a Node table, or NULL (with UNSUPPORTED in `error`) when this build does not know it. */
const ln_op *ln_read_op(const ln_fb_table *node, linnet_error *error);

int ln_callees(const ln_node *node, int64_t callees[LN_MOST_CALLEES]);

#endif
