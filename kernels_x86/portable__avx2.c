/* portable__avx2.c - reduce and the arithmetic of map for AVX2, from the sources that all ISA levels share: loops for
 * the compiler to vectorise. CMake gives this file its flags by its name. */
#define LN_SIMD_AVX2
#include "simd/simd.h"

#include "simd/map.inc.c"
#include "simd/reduce.inc.c"
