/* longtail__neon.c - the long-tail kernels of conv, its gradients and resize for NEON, which CMake compiles for size.
 * Their portable source is in runtime_c/fast/tail. This file only selects the vectors. */
#define LN_SIMD_NEON
#include "simd/simd.h"

#include "fast/tail/longtail.inc.c"
