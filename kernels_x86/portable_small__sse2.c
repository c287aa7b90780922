/* portable_small__sse2.c - copy, reduce and the strips of map for SSE2, compiled for size: as fast.
 * Their source is portable: runtime_c/simd. This file only says which vectors. */
#define LN_SIMD_SSE2
#include "simd/simd.h"

#include "simd/copy.inc.c"
#include "simd/map_strip.inc.c"
#include "simd/reduce.inc.c"
