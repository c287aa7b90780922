/* gemm_f32__sse2.c - f32 matmul and conv for every x86-64, tiles of up to 4 x 8: 8 accumulators, 2 vectors of B.
 * f16 and bf16 operands are widened when they are gathered or packed. */
#include "fast/gemm/gemm.h"
#include "fast/gemm/gemm_driver_pack.h"
#include "fast/gemm/gemm_kernels.h"

#include <emmintrin.h>
#include <math.h>
#include <string.h>

#define MAX_ROWS 4
#define GEMM_ROWS LN_GEMM_ROWS_4
#define VEC __m128
#define VEC_LANES 4
#define VEC_LOAD _mm_loadu_ps
#define VEC_STORE _mm_storeu_ps
#define VEC_ADD _mm_add_ps
#define VEC_SET1 _mm_set1_ps
#define VEC_MIN _mm_min_ps
#define VEC_MAX _mm_max_ps

/* The empty statement prevents the compiler from computing all products before the first sum. It does not have enough
 * registers for that, and the speed would be half (measured). */
static inline VEC VEC_MULTIPLY_ADD(VEC x, VEC y, VEC sum) {
    sum = _mm_add_ps(sum, _mm_mul_ps(x, y));
    __asm__ volatile("" : "+x"(sum));
    return sum;
}

#include "kernels_x86/gemm/gemm_f32.inc"

static void convert(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    ln_gemm_convert_any(dst, src, stride, n, src_dtype, LINNET_F32);
}

const ln_gemm_set ln_gemm_f32__sse2 = {.a_dtype = LINNET_F32,
                                       .b_dtype = LINNET_F32,
                                       .c_dtype = LINNET_F32,
                                       .rows = MAX_ROWS,
                                       .width = 2 * VEC_LANES,
                                       .adds = true,
                                       .depth = 1,
                                       .takes = 1u << LINNET_F32 | 1u << LINNET_F16 | 1u << LINNET_BF16,
                                       .takes_b = 1u << LINNET_F32 | 1u << LINNET_F16 | 1u << LINNET_BF16,
                                       .full = full,
                                       .half = half,
                                       .convert = convert};
static const ln_gemm_set *const sets[] = {&ln_gemm_f32__sse2};

LN_GEMM_KERNELS(f32__sse2, sets)
LN_GEMM_BACKWARD(f32__sse2, &ln_gemm_f32__sse2)
