/* longtail_small__avx2.c - pooling, norms, resize and transposed conv for avx2, compiled for size: as fast, a third
 * smaller. Their source is portable: runtime_c/simd. This file only says which vectors. */
#define LN_SIMD_AVX2
#define LN_LONGTAIL_SMALL
#include "simd/simd.h"

#include "simd/longtail.inc.c"
