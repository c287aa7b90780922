/* gemm_f32__neon.c - f32 products for every ARMv8 that read A in place: 16 accumulators. */
#define LN_SIMD_NEON
#define MAX_ROWS 8
#define ROWS LN_GEMM_ROWS_8
#define FMA vfmaq_laneq_f32
#include "kernels_arm/gemm/gemm_f32.inc"

LN_GEMM_BACKWARD(f32__neon, &ln_gemm_f32__neon)
