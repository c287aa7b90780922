/* longtail__avx2.c - all long-tail kernels for AVX2.
 * Their portable source is in runtime_c/fast/tail. This file only selects the vectors. */
#define LN_SIMD_AVX2
#include "simd/simd.h"

#include "fast/tail/longtail.inc.c"
#include "fast/tail/longtail_lines.inc.c"
