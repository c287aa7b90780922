/* simd.h - portable vectors of f32 and i32, as wide as those of the ISA level: SSE2, AVX2, AVX-512, NEON.
 * A kernel is written once in a .inc.c file and included by one small .c file per ISA, which selects the vectors. */
#ifndef LN_SIMD_H
#define LN_SIMD_H

/* Use:
 *     #define LN_SIMD_AVX2            (or _SSE2, _AVX512, _NEON, _SCALAR; in kernels_x86/NAME__avx2.c)
 *     #include "simd/simd.h"
 *     #include "fast/tail/NAME.inc.c"
 * LN_SIMD_NAME(base) appends "__avx2" to a name. LN_SIMD_ISA is the set of features (ln_isa).
 *
 * Types: vf (VF_WIDTH floats), vi (VF_WIDTH int32), vm (a mask with one truth value per lane).
 * Nothing needs alignment. `_partial(p, n)` touches exactly n elements, 0 <= n <= VF_WIDTH; other lanes load as 0.
 * Functions give the same bits on every ISA, except where the list says otherwise.
 *
 * Floats:  vf_zero() vf_set1(x) vf_load(p) vf_store(p, v) vf_load_partial(p, n) vf_store_partial(p, n, v)
 *          vf_add vf_sub vf_mul vf_div vf_sqrt vf_neg vf_abs vf_round (half to even)
 *          vf_fma(a, b, c): a * b + c, fused where the ISA can; the bits differ between ISAs, so maps never use it
 *          vf_min(a, b): a < b ? a : b;  vf_max(a, b): a > b ? a : b  (so b if either is NaN, on every ISA)
 *          vf_reduce_add vf_reduce_max vf_reduce_min: over all lanes, half by half
 * Compare: vf_lt vf_le vf_gt vf_ge vf_eq and vi_eq vi_gt give a vm;  vm_and vm_or vm_not
 *          vm_first(n): lanes below n;  vf_select(m, a, b) and vi_select(m, a, b): m ? a : b
 * Ints:    vi_zero vi_set1 vi_load vi_store vi_load_partial vi_store_partial vi_add vi_sub vi_mul (low 32 bits)
 *          vi_min vi_max vi_and vi_or vi_xor; vi_shl(v, n) vi_sar(v, n) vi_shr(v, n) with an int n for all lanes
 *          vi_iota(): 0, 1, 2, ...;  vi_reduce_add(v)
 *          vi_add_pairs(sum, a, b): sum + the two products of the 16-bit halves of each lane (x86 only)
 *          vi_max_i8 vi_max_u8 vi_max_i16: maxima of 8-bit or 16-bit lanes in the same bits (not in plain C)
 *          vi_fixed_multiply(x, fixed, shift): ln_fixed_multiply per lane, if VI_FIXED_MULTIPLY is defined;
 *          vi_fixed_multiply_single likewise
 * Convert: vf_from_vi;  vf_from_parts(high, low): 256 * high + low, rounded once
 *          vf_from_wide(high, low, more): the same plus an f64 per lane, if the sum is below 2^53 (x86 only)
 *          vi_from_vf (half to even) and vi_trunc_vf: unspecified unless |x| < 2^31
 *          vf_as_vi and vi_as_vf: keep the bits
 * Narrow types in memory, each function also with _partial(p, n) or _partial(p, n, v):
 *          vi_load_i8 vi_load_u8 vi_load_i16 vi_load_u16: widened
 *          vi_store_i8 vi_store_u8 vi_store_i16 vi_store_u16: saturated, for any int32
 *          vf_load_f16 vf_load_bf16 (from uint16_t): exact;  vf_store_f16 vf_store_bf16: half to even
 */

#include "kernel/kernel.h"

#include <string.h>

#if defined(LN_SIMD_SSE2)
#define LN_SIMD_NAME(base) base##__sse2
#define LN_SIMD_ISA LN_ISA_sse2
#include "simd/simd_sse2.h"
#elif defined(LN_SIMD_AVX2)
#define LN_SIMD_NAME(base) base##__avx2
#define LN_SIMD_ISA LN_ISA_avx2
#include "simd/simd_avx2.h"
#elif defined(LN_SIMD_AVX512)
#define LN_SIMD_NAME(base) base##__avx512
#define LN_SIMD_ISA LN_ISA_avx512
#include "simd/simd_avx512.h"
#elif defined(LN_SIMD_NEON) && defined(__aarch64__)
#define LN_SIMD_NAME(base) base##__neon
#define LN_SIMD_ISA LN_ISA_neon
#include "simd/simd_neon.h"
#elif defined(LN_SIMD_NEON)
#define LN_SIMD_NAME(base) base##__neon32
#define LN_SIMD_ISA LN_ISA_neon32
#include "simd/simd_neon.h"
#elif defined(LN_SIMD_SCALAR)
#define LN_SIMD_NAME(base) base##__scalar
#define LN_SIMD_ISA LN_ISA_SCALAR
#include "simd/simd_scalar.h"
#else
#error "define LN_SIMD_SSE2, LN_SIMD_AVX2, LN_SIMD_AVX512, LN_SIMD_NEON or LN_SIMD_SCALAR before including simd.h"
#endif

static inline vf vf_zero(void) { return vf_set1(0.0f); }
static inline vi vi_zero(void) { return vi_set1(0); }
static inline vf vf_neg(vf a) { return vi_as_vf(vi_xor(vf_as_vi(a), vi_set1(INT32_MIN))); }
static inline vf vf_abs(vf a) { return vi_as_vf(vi_and(vf_as_vi(a), vi_set1(INT32_MAX))); }
#if !defined(LN_SIMD_NEON64) && !defined(LN_SIMD_SCALAR)
/* The number is first split into upper * 2^16 + 16 bits. Both parts are exact in f32, so only their sum is rounded. */
static inline vf vf_from_parts(vi high, vi low) {
    const vi bits = vi_set1(0xffff), lower = vi_add(vi_shl(vi_and(high, vi_set1(0xff)), 8), vi_and(low, bits));
    const vi upper = vi_add(vi_add(vi_sar(high, 8), vi_sar(low, 16)), vi_shr(lower, 16));
    return vf_add(vf_mul(vf_from_vi(upper), vf_set1(65536.0f)), vf_from_vi(vi_and(lower, bits)));
}
#endif
static inline vi vi_iota(void) {
    static const int32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return vi_load(lanes);
}
#if !defined(LN_SIMD_AVX512) && !defined(LN_SIMD_AVX2)
static inline vm vm_first(int n) { return vi_gt(vi_set1(n), vi_iota()); }
#endif

/* Declares a function that is not inlined, for rare code in hot functions. */
#if defined(__GNUC__)
#define LN_SIMD_APART static __attribute__((noinline, unused))
#else
#define LN_SIMD_APART static inline
#endif
/* Put LN_SIMD_UNROLL before a loop over an array of vectors. The vectors stay in registers only if every index is a
 * constant, which unrolling ensures. */
#if defined(__clang__)
#define LN_SIMD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LN_SIMD_UNROLL _Pragma("GCC unroll 16")
#endif

/* Partial access through a buffer on the stack. These functions are not inlined, because the code has many tails but
 * runs them rarely. */
#define LN_SIMD_PARTIAL_LOAD(vector, name, type)                                                                       \
    LN_SIMD_APART vector name##_partial(const type *p, int n) {                                                        \
        type lanes[VF_WIDTH] = {0};                                                                                    \
        for (int i = 0; i < n; i++) lanes[i] = p[i];                                                                   \
        return name(lanes);                                                                                            \
    }
#define LN_SIMD_PARTIAL_STORE(vector, name, type)                                                                      \
    LN_SIMD_APART void name##_partial(type *p, int n, vector v) {                                                      \
        type lanes[VF_WIDTH];                                                                                          \
        name(lanes, v);                                                                                                \
        for (int i = 0; i < n; i++) p[i] = lanes[i];                                                                   \
    }
LN_SIMD_PARTIAL_LOAD(vi, vi_load_i8, int8_t)
LN_SIMD_PARTIAL_LOAD(vi, vi_load_u8, uint8_t)
LN_SIMD_PARTIAL_LOAD(vi, vi_load_i16, int16_t)
LN_SIMD_PARTIAL_LOAD(vi, vi_load_u16, uint16_t)
LN_SIMD_PARTIAL_LOAD(vf, vf_load_f16, uint16_t)
LN_SIMD_PARTIAL_LOAD(vf, vf_load_bf16, uint16_t)
LN_SIMD_PARTIAL_STORE(vi, vi_store_i8, int8_t)
LN_SIMD_PARTIAL_STORE(vi, vi_store_u8, uint8_t)
LN_SIMD_PARTIAL_STORE(vi, vi_store_i16, int16_t)
LN_SIMD_PARTIAL_STORE(vi, vi_store_u16, uint16_t)
LN_SIMD_PARTIAL_STORE(vf, vf_store_f16, uint16_t)
LN_SIMD_PARTIAL_STORE(vf, vf_store_bf16, uint16_t)
#if !defined(LN_SIMD_AVX512) && !defined(LN_SIMD_AVX2)
LN_SIMD_PARTIAL_LOAD(vf, vf_load, float)
LN_SIMD_PARTIAL_STORE(vf, vf_store, float)
LN_SIMD_PARTIAL_LOAD(vi, vi_load, int32_t)
LN_SIMD_PARTIAL_STORE(vi, vi_store, int32_t)
#endif

#endif
