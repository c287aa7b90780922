/* portable_small__sse2.c - reduce and copy for SSE2, from the sources that all ISA levels share.
 * CMake gives this file its flags by its name; it is compiled for size. */
#define LN_SIMD_SSE2
#include "simd/simd.h"

#include "simd/copy.inc.c"
#include "simd/reduce.inc.c"
