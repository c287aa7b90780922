/* map_shape.h - facts about a map program that the shape rule, the reference and the compiler share.
 * An instruction is 5 integers: opcode, register type, a, b, c. */
#ifndef LN_MAP_SHAPE_H
#define LN_MAP_SHAPE_H

#include "kernel/kernel.h"

#define LN_MAP_WORDS 5

/* Whether input i takes part in broadcasting. A table does not. */
bool ln_map_broadcasts(const ln_map_attributes *map, int input);
/* Type of the register that instruction i writes. Comparisons give i32. */
int ln_map_result_type(const int64_t *instruction);

#endif
