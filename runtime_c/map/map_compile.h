/* map_compile.h - compiles the program of a map for the strip interpreter. Call ln_map_compilable, then ln_map_compile
 * into temporary memory, then ln_map_keep. */
#ifndef LN_MAP_MAP_COMPILE_H
#define LN_MAP_MAP_COMPILE_H

#include "map/map_program.h"

/* Tells whether instruction k is a constant: an immediate, or a load of a one-element input whose value is known. If
 * so, the 8 bytes at `value` become the value in its register type. */
bool ln_map_constant_value(const ln_map_source *source, int64_t k, void *value);
/* Tells whether the interpreter can run the program. If not, only the reference can. */
bool ln_map_compilable(const ln_map_source *source);
/* Compiles into memory of `pool`, everything but the constants, so p->constants stays NULL. Precondition: the program
 * was verified and is compilable. Errors: OUT_OF_MEMORY. */
linnet_status ln_map_compile(const ln_map_source *source, ln_pool *pool, ln_map_program *p);
/* Returns the value of p->constants, in memory of `pool`: one strip per constant, filled with it. NULL: out of memory.
 */
const char *ln_map_constants(const ln_map_source *source, const ln_map_program *p, ln_pool *pool);
/* Copies a compiled program, with its constants, to memory of the call's plan, and sets *out. The copy exists because
 * compiling takes far more memory than the program, and that memory is temporary. Errors: OUT_OF_MEMORY. */
linnet_status ln_map_keep(const ln_map_source *source, const ln_map_program *p, ln_call *call, ln_map_program **out);

#endif
