/* verify_map.h - checks the programs of `map` nodes. */
#ifndef LN_VERIFY_MAP_H
#define LN_VERIFY_MAP_H

#include "model/graph.h"
#include "generated/op_table.h"

/* Checks a map program, so that interpreters can run it without checks. The function is called when the file is read
 * and again when shapes are known: dtypes and ranks of operands are checked as far as they are known. `temporary` is
 * for scratch memory. Errors: BAD_ATTRIBUTE, OUT_OF_MEMORY. */
linnet_status ln_verify_map(const ln_map_attributes *map, int n_inputs, const ln_tensor *inputs, int n_outputs,
                            const ln_tensor *outputs, ln_pool *temporary, linnet_error *error);

#endif
