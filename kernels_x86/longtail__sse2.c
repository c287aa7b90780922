/* longtail__sse2.c - the long-tail kernels (depthwise, pooling, softmax, norms, resize) for sse2.
 * Their source is portable: runtime_c/simd. This file only says which vectors. */
#define LN_SIMD_SSE2
#include "simd/simd.h"

#include "simd/longtail.inc.c"
