/* longtail__avx512.c - the long-tail kernels that gain from avx512 (depthwise, softmax, recurrent).
 * Their source is portable: runtime_c/simd. This file only says which vectors. */
#define LN_SIMD_AVX512
#include "simd/simd.h"

#include "simd/longtail.inc.c"
