/* portable_small__avx2.c - copy and the strips of map for AVX2, compiled for size: as fast.
 * Their source is portable: runtime_c/simd. This file only says which vectors. */
#define LN_SIMD_AVX2
#include "simd/simd.h"

#include "simd/copy.inc.c"
#include "simd/map_strip.inc.c"
