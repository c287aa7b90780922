/* map_kernel.h - the parts of the `map` kernel that do not depend on the ISA. */
#ifndef LN_MAP_MAP_KERNEL_H
#define LN_MAP_MAP_KERNEL_H

#include "map/map_program.h"

/* Divides a thread's scratch memory into the pointers and the strips of all registers, and returns the pointers.
 * `scratch` has p->scratch_bytes bytes and is 64-byte aligned. */
char **ln_map_registers(const ln_map_program *p, void *scratch);
/* Compiles the program that ln_map_run runs, into call->state. With an isa, the program may use its activations, and
 * becomes a lookup table if that is faster. isa NULL: neither. Errors: OUT_OF_MEMORY. */
linnet_status ln_map_prepare(const ln_map_source *source, ln_call *call, const ln_map_isa *isa);

/* The functions of a kernel, for any ISA. `features` are those of the kernel's ISA. ln_map_run computes strips
 * [begin, end) with the functions of `isa`. */
bool ln_map_can(const ln_call *call);
linnet_status ln_map_configure(ln_call *call, ln_features features);
linnet_status ln_map_run(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end, int thread,
                         const ln_map_isa *isa);

#endif
