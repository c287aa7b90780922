/* longtail.inc.c - all long-tail kernels, in one translation unit per ISA; longtail__<isa>.c includes it.
 * Included after simd/simd.h. */
#if defined(__GNUC__)
#define LN_ALWAYS_INLINE inline __attribute__((always_inline))
#define LN_NEVER_INLINE __attribute__((noinline))
#else
#define LN_ALWAYS_INLINE inline
#define LN_NEVER_INLINE
#endif
/* Before a loop over registers: an array of vectors stays in registers only when every index is a constant. */
#ifndef LN_UNROLL
#if defined(__clang__)
#define LN_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define LN_UNROLL _Pragma("GCC unroll 16")
#else
#define LN_UNROLL
#endif
#endif

#include "simd/depthwise.inc.c"
#include "simd/softmax.inc.c"
#include "simd/recurrent.inc.c"

/* Bound by memory, or rare, these gain nothing from AVX-512 over AVX2 that would be worth 25 KB of the library. */
#ifndef LN_SIMD_AVX512
#include "simd/norm.inc.c"
#include "simd/pool.inc.c"
#include "simd/resize.inc.c"
#endif

/* SSE2, the level of processors before 2013, transposes convolutions as matrix products, and depthwise; only training
 * needs the others, for which it has the references. */
#if !defined(LN_SIMD_AVX512) && !defined(LN_SIMD_SSE2)
#include "simd/conv_transpose.inc.c"
#include "simd/depthwise_gradient.inc.c"
#include "simd/moments.inc.c"
#include "simd/pool_gradient.inc.c"
#endif
