/* verify_map.h - checks the programs of `map` nodes. */
#ifndef LN_VERIFY_MAP_H
#define LN_VERIFY_MAP_H

#include "model/graph.h"
#include "generated/op_table.h"

/* Checks a program so that the interpreter can run it without checks. Operands that are known are checked
   too. */
linnet_status ln_verify_map(const ln_map_attributes *map, int n_inputs, const ln_tensor *inputs, int n_outputs,
                            const ln_tensor *outputs, ln_pool *temporary, linnet_error *error);

#endif
