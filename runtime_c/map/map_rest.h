/* map_rest.h - the steps of a strip that have no vector code: rare dtypes, 64-bit registers, rare functions. */
#ifndef LN_MAP_MAP_REST_H
#define LN_MAP_MAP_REST_H

#include "map/map_program.h"

/* All ISAs share these functions. The first two convert n elements between a dtype in memory and a register type;
 * `offset` and `stride` are in elements. ln_map_rest computes a step on n elements; registers that the opcode does not
 * read are ignored. */
void ln_map_load_any(int dtype, int type, const void *data, int64_t offset, int64_t stride, int n, void *y);
void ln_map_store_any(int dtype, int type, const void *register_, int n, void *data, int64_t offset, int64_t stride);
void ln_map_rest(const ln_map_step *step, int n, const void *a, const void *b, const void *c, void *y);

#endif
