/* longtail__neon.c - the long-tail kernels (depthwise, pooling, softmax, norms, resize, transposed conv) for neon.
 * Their source is portable: runtime_c/simd. This file only says which vectors. */
#define LN_SIMD_NEON
#include "simd/simd.h"

#include "simd/longtail.inc.c"
