/* gemm_f32__avx512.c - f32 matmul and conv, tiles of up to 14 x 32: 28 accumulators, 2 vectors of B, one of A.
 * f16 and bf16 operands are widened on the way in (gather) and when packed. */
#include "core/gemm.h"

#include <immintrin.h>

#define MAX_ROWS 14
#define GEMM_ROWS LN_GEMM_ROWS_14
#define VEC __m512
#define VEC_LANES 16
#define VEC_LOAD _mm512_load_ps
#define VEC_STORE _mm512_storeu_ps
#define VEC_SET1 _mm512_set1_ps
#define VEC_MULTIPLY_ADD _mm512_fmadd_ps
#define VEC_MIN _mm512_min_ps
#define VEC_MAX _mm512_max_ps

static inline void store_part(float *c, VEC v, int64_t columns) {
    int n = columns < 0 ? 0 : columns > VEC_LANES ? VEC_LANES : (int)columns;
    _mm512_mask_storeu_ps(c, (__mmask16)((1u << n) - 1), v);
}

#include "kernels_x86/gemm_f32.inc"

static void convert(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    float *y = dst;
    int64_t i = 0;
    if (stride == 1 && src_dtype == LINNET_F16)
        for (; i + 16 <= n; i += 16)
            _mm512_storeu_ps(y + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)((const uint16_t *)src + i))));
    if (stride == 1 && src_dtype == LINNET_BF16)
        for (; i + 16 <= n; i += 16) {
            __m256i x = _mm256_loadu_si256((const __m256i *)((const uint16_t *)src + i));
            _mm512_storeu_ps(y + i, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)));
        }
    ln_gemm_convert_any(y + i, (const char *)src + i * stride * (int64_t)ln_dtype_size(src_dtype), stride, n - i,
                        src_dtype, LINNET_F32);
}

const ln_gemm_set ln_gemm_f32__avx512 = {
    .a_dtype = LINNET_F32, .b_dtype = LINNET_F32, .c_dtype = LINNET_F32, .rows = MAX_ROWS, .width = 2 * VEC_LANES,
    .depth = 1, .takes = 1u << LINNET_F32 | 1u << LINNET_F16 | 1u << LINNET_BF16, .full = full, .half = half,
    .convert = convert};
static const ln_gemm_set *const sets[] = {&ln_gemm_f32__avx512};

LN_GEMM_KERNELS(f32__avx512, "matmul_f32_14x32__avx512", "conv_f32_igemm_14x32__avx512", LN_ISA_AVX512, sets)
