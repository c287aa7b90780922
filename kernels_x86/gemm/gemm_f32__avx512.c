/* gemm_f32__avx512.c - f32 matmul and conv, tiles of up to 14 x 32: 28 accumulators, 2 vectors of B, one of A.
 * f16 and bf16 activations are widened when they are gathered; weights are widened panel by panel. */
#include "fast/gemm/gemm.h"
#include "fast/gemm/gemm_kernels.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define MAX_ROWS 14
#define GEMM_ROWS(M) LN_GEMM_ROWS_14(M) M(8) /* 8: a Winograd convolution over 14 x 14 has 16 tiles */
#define VEC __m512
#define VEC_LANES 16
#define VEC_LOAD _mm512_loadu_ps
#define VEC_STORE _mm512_storeu_ps
#define VEC_ADD _mm512_add_ps
#define VEC_SET1 _mm512_set1_ps
#define VEC_MULTIPLY_ADD _mm512_fmadd_ps
#define VEC_MIN _mm512_min_ps
#define VEC_MAX _mm512_max_ps

#define LOAD_HALVES(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define VEC_LOAD_F16(p) _mm512_cvtph_ps(LOAD_HALVES(p))
#define VEC_LOAD_BF16(p) _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(LOAD_HALVES(p)), 16))

#include "kernels_x86/gemm/gemm_f32.inc"

const ln_gemm_set ln_gemm_f32__avx512 = {.a_dtype = LINNET_F32,
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
static const ln_gemm_set *const sets[] = {&ln_gemm_f32__avx512};

LN_GEMM_KERNELS(f32__avx512, sets)
LN_GEMM_BACKWARD(f32__avx512, &ln_gemm_f32__avx512)
