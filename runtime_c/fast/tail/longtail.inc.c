/* longtail.inc.c - all long-tail kernels in one translation unit per ISA, which is longtail__<isa>.c.
 * Included after simd/simd.h. */
#if defined(__GNUC__)
#define LN_ALWAYS_INLINE inline __attribute__((always_inline))
#define LN_NEVER_INLINE __attribute__((noinline))
#else
#define LN_ALWAYS_INLINE inline
#define LN_NEVER_INLINE
#endif
/* Put this before a loop over registers. An array of vectors stays in registers only if every index is a constant. */
#ifndef LN_UNROLL
#if defined(__clang__)
#define LN_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define LN_UNROLL _Pragma("GCC unroll 16")
#else
#define LN_UNROLL
#endif
#endif

#include "fast/tail/conv_transpose.inc.c"
#include "fast/tail/depthwise.inc.c"
#include "fast/tail/depthwise_gradient.inc.c"
#include "fast/tail/matmul_weights.inc.c"
#include "fast/tail/moments.inc.c"
#include "fast/tail/norm.inc.c"
#include "fast/tail/pool.inc.c"
#include "fast/tail/pool_gradient.inc.c"
#include "fast/tail/resize.inc.c"
#include "fast/tail/softmax.inc.c"
#include "fast/tail/winograd.inc.c"
#include "fast/tail/recurrent.inc.c" /* uses the exponential of softmax.inc.c */
