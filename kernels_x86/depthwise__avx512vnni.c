/* depthwise__avx512vnni.c - depthwise convolution of integers with the dot products of AVX-512 VNNI.
 * Its portable source is in runtime_c/fast/tail. This file only selects the vectors and the kernel's name. */
#define LN_SIMD_AVX512
#include "simd/simd.h"
#undef LN_SIMD_NAME
#define LN_SIMD_NAME(base) base##__avx512vnni
#include "kernel/common/inline.h"

#include "fast/tail/depthwise_lanes.inc.c"
