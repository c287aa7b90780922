/* map_kernel.h - the kernel of `map` nodes, for the interpreter of each ISA. */
#ifndef LN_MAP_MAP_KERNEL_H
#define LN_MAP_MAP_KERNEL_H

#include "map/map_program.h"

/* Lays out pointers and strips in scratch (64-byte aligned, p->scratch_bytes). */
char **ln_map_registers(const ln_map_program *p, void *scratch);
/* Compiles the program that ln_map_run runs. isa: for a program that is faster as a lookup table; NULL: no table. */
linnet_status ln_map_prepare(const ln_map_source *source, ln_call *call, const ln_map_isa *isa);

/* Kernel functions that work with any strip interpreter. */
bool ln_map_can(const ln_call *call);
linnet_status ln_map_configure(ln_call *call, ln_features features);
linnet_status ln_map_run(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end, int thread,
                         ln_map_strip strip);

#endif
