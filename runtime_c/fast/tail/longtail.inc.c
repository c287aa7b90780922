/* longtail.inc.c - the long-tail kernels of conv, its gradients and resize, in one translation unit per ISA, which is
 * longtail__<isa>.c. Their loops are unrolled vectors, so that -Os costs no time. Included after simd/simd.h. */
#include "kernel/common/inline.h"

#include "fast/tail/conv_transpose.inc.c"
#include "fast/tail/depthwise.inc.c"
#include "fast/tail/depthwise_gradient.inc.c"
#include "fast/tail/matmul_weights.inc.c"
#include "fast/tail/moments.inc.c"
#include "fast/tail/pool_gradient.inc.c"
#include "fast/tail/resize.inc.c"
#include "fast/tail/winograd.inc.c"
#if defined(LN_SIMD_AVX2) || defined(LN_SIMD_AVX512) /* only these micro-kernels take A and B unpacked */
#include "fast/tail/winograd_gradient.inc.c"
#endif
