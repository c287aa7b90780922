/* gemm_f32__avx2.c - f32 matmul and conv, tiles of up to 6 x 16: 12 accumulators, 2 vectors of B, one of A.
 * f16 and bf16 activations are widened when they are gathered; weights are widened panel by panel. */
#include "fast/gemm/gemm.h"
#include "fast/gemm/gemm_kernels.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define MAX_ROWS 6
#define GEMM_ROWS LN_GEMM_ROWS_6
#define VEC __m256
#define VEC_LANES 8
#define VEC_LOAD _mm256_loadu_ps
#define VEC_STORE _mm256_storeu_ps
#define VEC_ADD _mm256_add_ps
#define VEC_SET1 _mm256_set1_ps
#define VEC_MULTIPLY_ADD _mm256_fmadd_ps
#define VEC_MIN _mm256_min_ps
#define VEC_MAX _mm256_max_ps

#define LOAD_HALVES(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define VEC_LOAD_F16(p) _mm256_cvtph_ps(LOAD_HALVES(p))
#define VEC_LOAD_BF16(p) _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(LOAD_HALVES(p)), 16))

#include "kernels_x86/gemm/gemm_f32.inc"

const ln_gemm_set ln_gemm_f32__avx2 = {.a_dtype = LINNET_F32,
                                       .b_dtype = LINNET_F32,
                                       .c_dtype = LINNET_F32,
                                       .halves = true,
                                       .rows = MAX_ROWS,
                                       .width = 2 * VEC_LANES,
                                       .adds = true,
                                       .depth = 1,
                                       .takes = 1u << LINNET_F32 | 1u << LINNET_F16 | 1u << LINNET_BF16,
                                       .takes_b = 1u << LINNET_F32 | 1u << LINNET_F16 | 1u << LINNET_BF16,
                                       .full = full,
                                       .half = half,
                                       .convert = convert};
static const ln_gemm_set *const sets[] = {&ln_gemm_f32__avx2};

LN_GEMM_KERNELS(f32__avx2, sets)
LN_GEMM_BACKWARD(f32__avx2, &ln_gemm_f32__avx2)
