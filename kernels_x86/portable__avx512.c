/* portable__avx512.c - map, reduce and copy for AVX512, from the sources that all ISA levels share.
 * CMake gives this file its flags by its name. */
#define LN_SIMD_AVX512
#include "simd/simd.h"

#include "simd/copy.inc.c"
#include "simd/map.inc.c"
#include "simd/reduce.inc.c"
