/* map_scalar.h - the arithmetic of maps on one element. */
#ifndef LN_MAP_MAP_SCALAR_H
#define LN_MAP_MAP_SCALAR_H

#include "map/map_program.h"

/* Computes an arithmetic step on n elements in plain C, for the reference. Registers that the opcode does not read are
 * ignored. */
void ln_map_arithmetic(const ln_map_step *step, int n, const void *a, const void *b, const void *c, void *y);

#endif
