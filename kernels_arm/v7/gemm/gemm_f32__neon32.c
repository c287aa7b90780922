/* gemm_f32__neon32.c - f32 products for ARMv7 with NEON that read A in place: 8 accumulators. */
#define LN_SIMD_NEON
#define MAX_ROWS 4
#define ROWS LN_GEMM_ROWS_4
#define FMA(sum, b, a, lane) vmlaq_lane_f32(sum, b, (lane) < 2 ? vget_low_f32(a) : vget_high_f32(a), (lane) & 1)
#include "kernels_arm/gemm/gemm_f32.inc"

LN_GEMM_BACKWARD(f32__neon32, &ln_gemm_f32__neon32)
