/* portable_small__avx512.c - the strips of map for AVX-512, compiled for size: as fast. Their source is portable:
 * runtime_c/simd. This file only says which vectors; copy and reduce are those of AVX2. */
#define LN_SIMD_AVX512
#include "simd/simd.h"

#include "simd/map_strip.inc.c"
