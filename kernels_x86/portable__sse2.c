/* portable__sse2.c - map for SSE2 (every x86-64), from the source that all ISA levels share.
 * CMake gives this file its flags by its name. */
#define LN_SIMD_SSE2
#include "simd/simd.h"

#include "simd/map.inc.c"
