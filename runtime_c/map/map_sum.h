/* map_sum.h - sums of two tensors of 8-bit integers as TensorFlow Lite computes them, which a loop of its own computes
 * much faster than the strip interpreter. */
#ifndef LN_MAP_MAP_SUM_H
#define LN_MAP_MAP_SUM_H

#include "map/map_program.h"

/* 0 if no ISA of this architecture has the loop (map_sum.inc.c); then the code that recognizes such sums is left out.
 */
#ifdef __aarch64__
#define LN_MAP_HAS_SUM 1
#else
#define LN_MAP_HAS_SUM 0
#endif

/* Tells whether the compiled program `p` of a source is such a sum, and describes it. */
bool ln_map_find_sum(const ln_map_source *source, const ln_map_program *p, ln_map_sum *sum);

#endif
