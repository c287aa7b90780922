/* gemm_f32__avx2.c - f32 matmul and conv, tiles of up to 6 x 16: 12 accumulators, 2 vectors of B, one of A.
 * f16 and bf16 operands are widened on the way in (gather) and when packed. */
#include "core/gemm.h"

#include <immintrin.h>

#define MAX_ROWS 6
#define GEMM_ROWS LN_GEMM_ROWS_6
#define VEC __m256
#define VEC_LANES 8
#define VEC_LOAD _mm256_load_ps
#define VEC_STORE _mm256_storeu_ps
#define VEC_SET1 _mm256_set1_ps
#define VEC_MULTIPLY_ADD _mm256_fmadd_ps
#define VEC_MIN _mm256_min_ps
#define VEC_MAX _mm256_max_ps

static inline void store_part(float *c, VEC v, int64_t columns) {
    static const int32_t mask[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    int n = columns < 0 ? 0 : columns > VEC_LANES ? VEC_LANES : (int)columns;
    _mm256_maskstore_ps(c, _mm256_loadu_si256((const __m256i *)(mask + 8 - n)), v);
}

#include "kernels_x86/gemm_f32.inc"

static void convert(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    float *y = dst;
    int64_t i = 0;
    if (stride == 1 && src_dtype == LINNET_F16)
        for (; i + 8 <= n; i += 8)
            _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)src + i))));
    if (stride == 1 && src_dtype == LINNET_BF16)
        for (; i + 8 <= n; i += 8) {
            __m128i x = _mm_loadu_si128((const __m128i *)((const uint16_t *)src + i));
            _mm256_storeu_ps(y + i, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)));
        }
    ln_gemm_convert_any(y + i, (const char *)src + i * stride * (int64_t)ln_dtype_size(src_dtype), stride, n - i,
                        src_dtype, LINNET_F32);
}

const ln_gemm_set ln_gemm_f32__avx2 = {
    .a_dtype = LINNET_F32, .b_dtype = LINNET_F32, .c_dtype = LINNET_F32, .rows = MAX_ROWS, .width = 2 * VEC_LANES,
    .depth = 1, .takes = 1u << LINNET_F32 | 1u << LINNET_F16 | 1u << LINNET_BF16, .full = full, .half = half,
    .convert = convert};
static const ln_gemm_set *const sets[] = {&ln_gemm_f32__avx2};

LN_GEMM_KERNELS(f32__avx2, "matmul_f32_6x16__avx2", "conv_f32_igemm_6x16__avx2", LN_ISA_AVX2, sets)
