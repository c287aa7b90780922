/* longtail__avx512.c - the long-tail kernels that gain from AVX-512 (depthwise, softmax, recurrent).
 * Their portable source is in runtime_c/fast/tail. This file only selects the vectors. */
#define LN_SIMD_AVX512
#include "simd/simd.h"

#include "fast/tail/longtail.inc.c"
#include "fast/tail/longtail_lines.inc.c"
