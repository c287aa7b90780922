/* longtail__avx2.c - the long-tail kernels that are hot (depthwise, softmax, recurrent) for avx2.
 * Their source is portable: runtime_c/simd. This file only says which vectors. */
#define LN_SIMD_AVX2
#include "simd/simd.h"

#include "simd/longtail.inc.c"
