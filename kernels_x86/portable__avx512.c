/* portable__avx512.c - map for AVX-512, from the source that all ISA levels share; reduce and copy are as fast with
 * AVX2. CMake gives this file its flags by its name. */
#define LN_SIMD_AVX512
#include "simd/simd.h"

#include "simd/map.inc.c"
