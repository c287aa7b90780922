/* longtail__sse2.c - the long-tail kernels (depthwise, pooling, softmax, norms, resize) for SSE2.
 * Their portable source is in runtime_c/fast/tail. This file only selects the vectors. */
#define LN_SIMD_SSE2
#include "simd/simd.h"

#include "fast/tail/longtail.inc.c"
#include "fast/tail/longtail_lines.inc.c"
