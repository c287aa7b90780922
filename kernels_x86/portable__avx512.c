/* portable__avx512.c - map and reduce for AVX-512, from the sources that all ISAs share. There is no copy here, because
   the AVX2 copy is as fast. This file only selects the vectors. CMake chooses its compiler flags by its name. */
#define LN_SIMD_AVX512
#include "simd/simd.h"

#include "map/map.inc.c"
#include "map/map_strip.inc.c"
#include "fast/tail/quantize.inc.c"
#include "fast/tail/reduce.inc.c"
