/* map_scalar.c - the strip interpreter for plans without SIMD, where epilogues still need one.
 * The same source as the fast ones, over simd_scalar.h. */
#define LN_SIMD_SCALAR
#include "simd/simd.h"

#include "simd/map.inc.c"
