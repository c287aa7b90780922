/* map_scalar.c - the strip interpreter in plain C: the same source as the fast ones, over simd_scalar.h.
 * Where every processor has vectors (x86-64, 64-bit ARM) it is the reference's arithmetic alone. */
#if !defined(LN_SIMD_SCALAR) && (defined(__x86_64__) || defined(_M_X64) || defined(__aarch64__))
#define LN_MAP_ARITHMETIC_ONLY
#endif
#define LN_SIMD_SCALAR
#include "simd/simd.h"

#include "simd/map.inc.c"
#ifndef LN_MAP_ARITHMETIC_ONLY
#include "simd/map_strip.inc.c"
#endif
