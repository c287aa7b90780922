/* map_rest.h - loads, stores and runs the elements that fill no vector. */
#ifndef LN_MAP_MAP_REST_H
#define LN_MAP_MAP_REST_H

#include "map/map_program.h"

/* Shared by all ISAs: convert any memory type to any register type and back, and run the rarer opcodes. */
void ln_map_load_any(int dtype, int type, const void *data, int64_t offset, int64_t stride, int n, void *y);
void ln_map_store_any(int dtype, int type, const void *register_, int n, void *data, int64_t offset, int64_t stride);
void ln_map_rest(const ln_map_step *step, int n, const void *a, const void *b, const void *c, void *y);

#endif
