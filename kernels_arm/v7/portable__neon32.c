/* portable__neon32.c - map, reduce and copy for NEON of 32-bit ARM, from the sources that all ISA levels share.
 * CMake chooses this file's flags by its name. */
#define LN_SIMD_NEON
#include "simd/simd.h"

#include "fast/tail/copy.inc.c"
#include "map/map.inc.c"
#include "map/map_strip.inc.c"
#include "fast/tail/quantize.inc.c"
#include "fast/tail/reduce.inc.c"
#include "fast/tail/reduce_arg.inc.c"
