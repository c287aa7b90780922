/* portable__avx512.c - the arithmetic of map for AVX-512, from the source that all ISA levels share: loops for the
 * compiler to vectorise. CMake gives this file its flags by its name. */
#define LN_SIMD_AVX512
#include "simd/simd.h"

#include "simd/map.inc.c"
