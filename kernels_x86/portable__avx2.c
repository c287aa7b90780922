/* portable__avx2.c - map, reduce and copy for AVX2, from the sources that all ISA levels share.
 * CMake gives this file its flags by its name. */
#define LN_SIMD_AVX2
#include "simd/simd.h"

#include "simd/copy.inc.c"
#include "simd/map.inc.c"
#include "simd/reduce.inc.c"
