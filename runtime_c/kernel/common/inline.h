/* inline.h - what kernels ask of the compiler: functions that it inlines or does not, and loops that it unrolls. */
#ifndef LN_INLINE_H
#define LN_INLINE_H

#if defined(__GNUC__)
#define LN_ALWAYS_INLINE inline __attribute__((always_inline))
#define LN_NEVER_INLINE __attribute__((noinline))
#else
#define LN_ALWAYS_INLINE inline
#define LN_NEVER_INLINE
#endif
/* Put this before a loop over registers. An array of vectors stays in registers only if every index is a constant. */
#if defined(__clang__)
#define LN_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define LN_UNROLL _Pragma("GCC unroll 16")
#else
#define LN_UNROLL
#endif

#endif
