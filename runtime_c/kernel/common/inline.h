/* inline.h - requests to the compiler: inline a function, never inline a function, or unroll a loop. Results do not
 * depend on these requests, and a compiler that does not know them ignores them. */
#ifndef LN_INLINE_H
#define LN_INLINE_H

/* Hot loops are always inlined, so that their constant arguments are folded. Rare code is never inlined, so that it
 * does not enlarge hot functions. */
#if defined(__GNUC__)
#define LN_ALWAYS_INLINE inline __attribute__((always_inline))
#define LN_NEVER_INLINE __attribute__((noinline))
#else
#define LN_ALWAYS_INLINE inline
#define LN_NEVER_INLINE
#endif
/* Put LN_UNROLL before a loop over an array of vectors. The array stays in registers only if every index is a
 * constant, which full unrolling ensures. */
#if defined(__clang__)
#define LN_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define LN_UNROLL _Pragma("GCC unroll 16")
#else
#define LN_UNROLL
#endif

#endif
