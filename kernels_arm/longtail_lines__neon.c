/* longtail_lines__neon.c - the long-tail kernels over lines of values (attention, norms, pooling, recurrent cells,
 * softmax) for NEON. Their portable source is in runtime_c/fast/tail. This file only selects the vectors. */
#define LN_SIMD_NEON
#include "simd/simd.h"

#include "fast/tail/longtail_lines.inc.c"
