/* portable__avx2.c - copy, map and reduce for AVX2, from the sources that all ISAs share.
 * This file only selects the vectors. CMake chooses its compiler flags by its name. */
#define LN_SIMD_AVX2
#include "simd/simd.h"

#include "fast/tail/copy.inc.c"
#include "map/map.inc.c"
#include "map/map_strip.inc.c"
#include "fast/tail/quantize.inc.c"
#include "fast/tail/reduce.inc.c"
