/* gemm_s16__avx2.c - integer matmul and conv with AVX2, tiles of up to 6 x 16.
 * Weights have 8 bits, activations 8 or 16. 8-bit activations are widened to 16 bits once for all panels, when they are
 * gathered. */
#include "fast/gemm/gemm_kernels.h"
#include "kernels_x86/gemm/gemm_store__avx2.h"
#include "kernels_x86/gemm/gemm_tile__avx2.h"

#include <immintrin.h>
#include <string.h>

#define MAX_ROWS 6
#define GEMM_ROWS LN_GEMM_ROWS_6
#define VEC __m256i
#define VEC_LANES 8
#define VEC_LOAD(p) _mm256_load_si256((const __m256i *)(const void *)(p))
#define VEC_STORE(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), v)
#define VEC_SET1 _mm256_set1_epi32
#define VEC_ZERO _mm256_setzero_si256
#define VEC_ADD _mm256_add_epi32
#define VEC_WIDEN(p) _mm256_cvtepi8_epi16(_mm_load_si128((const __m128i *)(const void *)(p)))

/* This is assembly, because with intrinsics the compiler either computes all products before the first sum, which takes
 * more registers than there are, or copies every sum. */
static inline VEC VEC_PAIRS_ADD(VEC x, VEC y, VEC sum) {
    VEC product;
    __asm__ volatile("vpmaddwd %[y], %[x], %[product]\n\tvpaddd %[product], %[sum], %[sum]"
                     : [sum] "+x"(sum), [product] "=&x"(product)
                     : [x] "x"(x), [y] "x"(y));
    return sum;
}

#include "kernels_x86/gemm/gemm_s16.inc"

const ln_gemm_set ln_gemm_i8__avx2 = {.a_dtype = LINNET_I16,
                                      .b_dtype = LINNET_I8,
                                      .c_dtype = LINNET_I32,
                                      .rows = MAX_ROWS,
                                      .width = 2 * VEC_LANES,
                                      .depth = 2,
                                      .takes = 1u << LINNET_I8 | 1u << LINNET_U8,
                                      .takes_b = 1u << LINNET_I8 | 1u << LINNET_U8,
                                      .full = full,
                                      .half = half,
                                      .convert = convert,
                                      .row_sums = row_sums,
                                      .store = ln_gemm_store__avx2,
                                      .store_tile = ln_gemm_store_tile__avx2,
                                      .store_sum = ln_gemm_store_sum__avx2,
                                      .words = true};
const ln_gemm_set ln_gemm_i16__avx2 = {.a_dtype = LINNET_I16,
                                       .b_dtype = LINNET_I8,
                                       .c_dtype = LINNET_I64,
                                       .rows = MAX_ROWS,
                                       .width = 2 * VEC_LANES,
                                       .depth = 2,
                                       .takes = 1u << LINNET_I16,
                                       .narrow = &ln_gemm_i8__avx2,
                                       .takes_b = 1u << LINNET_I8 | 1u << LINNET_I16,
                                       .full = full,
                                       .half = half,
                                       .convert = convert,
                                       .row_sums = row_sums,
                                       .store = ln_gemm_store__avx2};
static const ln_gemm_set *const sets[] = {&ln_gemm_i8__avx2, &ln_gemm_i16__avx2};

LN_GEMM_KERNELS(int__avx2, sets)
