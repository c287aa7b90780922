/* map_compile.h - compiles the program of a map for the interpreter. */
#ifndef LN_MAP_MAP_COMPILE_H
#define LN_MAP_MAP_COMPILE_H

#include "map/map_program.h"

/* Value of a constant instruction, in 8 bytes: an immediate, or a load of a one-element input whose value is known. */
bool ln_map_constant_value(const ln_map_source *source, int64_t k, void *value);
/* Returns false if only the reference can run the program. */
bool ln_map_compilable(const ln_map_source *source);
/* Compiles into `pool`, all but the constants. */
linnet_status ln_map_compile(const ln_map_source *source, ln_pool *pool, ln_map_program *p);
/* Fills one strip with each constant. NULL: out of memory. */
const char *ln_map_constants(const ln_map_source *source, const ln_map_program *p, ln_pool *pool);
/* Copies a compiled program to the memory of the call, with its constants. A program takes far less memory than
 * compiling it. */
linnet_status ln_map_keep(const ln_map_source *source, const ln_map_program *p, ln_call *call, ln_map_program **out);

#endif
