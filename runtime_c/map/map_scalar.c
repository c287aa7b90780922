/* map_scalar.c - the strip interpreter in plain C: the same source as the fast ones, on top of simd_scalar.h.
 * On x86-64 and 64-bit ARM, where every processor has vectors, this file contains only the reference's arithmetic. */
#if !defined(LN_PORTABLE) &&                                                                                           \
    (defined(__x86_64__) || defined(_M_X64) || defined(__aarch64__) || (defined(__arm__) && defined(__ARM_NEON)))
#define LN_MAP_ARITHMETIC_ONLY
#endif
#define LN_SIMD_SCALAR
#include "map/map_scalar.h"

#include "simd/simd.h"

#include "map/map.inc.c"

void ln_map_arithmetic(const ln_map_step *step, int n, const void *a, const void *b, const void *c, void *y) {
    LN_SIMD_NAME(map_arithmetic)(step, n, a, b, c, y);
}

#ifndef LN_MAP_ARITHMETIC_ONLY
#include "map/map_strip.inc.c"
#endif
