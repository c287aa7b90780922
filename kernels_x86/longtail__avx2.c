/* longtail__avx2.c - all long-tail kernels for avx2.
 * Their source is portable: runtime_c/simd. This file only says which vectors. */
#define LN_SIMD_AVX2
#include "simd/simd.h"

#include "simd/longtail.inc.c"
