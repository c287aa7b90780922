/* map_shape.h - facts about a map program that the shape rule, the reference and the compiler share.
 * An instruction is 5 integers: opcode, register type, a, b, c. */
#ifndef LN_MAP_SHAPE_H
#define LN_MAP_SHAPE_H

#include "kernel/kernel.h"

#define LN_MAP_WORDS 5

/* Tells whether the shape of input i takes part in broadcasting. Every input does, except one that is looked up as a
   table. */
bool ln_map_broadcasts(const ln_map_attributes *map, int input);
/* Returns the type of the register that the instruction writes. `instruction` points to its LN_MAP_WORDS integers.
 * Comparisons give i32. */
int ln_map_result_type(const int64_t *instruction);

#endif
