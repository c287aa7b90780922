/* portable__neon.c - map, reduce and copy for NEON, from the sources that all ISA levels share.
 * CMake gives this file its flags by its name. */
#define LN_SIMD_NEON
#include "simd/simd.h"

#include "simd/copy.inc.c"
#include "simd/map.inc.c"
#include "simd/map_strip.inc.c"
#include "simd/reduce.inc.c"
