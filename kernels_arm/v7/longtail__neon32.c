/* longtail__neon32.c - the long-tail kernels (depthwise, pooling, softmax, norms, resize, transposed conv) for NEON of
 * 32-bit ARM. Their portable source is in runtime_c/fast/tail. This file only selects the vectors. */
#define LN_SIMD_NEON
#include "simd/simd.h"

#include "fast/tail/longtail.inc.c"
#include "fast/tail/longtail_lines.inc.c"
