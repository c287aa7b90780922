/* portable_small__avx2.c - copy for AVX2, compiled for size: as fast, a third smaller. Its source is portable:
 * runtime_c/simd. This file only says which vectors. */
#define LN_SIMD_AVX2
#include "simd/simd.h"

#include "simd/copy.inc.c"
