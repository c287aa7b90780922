/* gemm_s16__sse2.c - integer matmul and conv with SSE2, tiles of up to 4 x 8.
 * Weights have 8 bits, activations 8 or 16. 8-bit activations are widened to 16 bits once for all panels, when they are
 * gathered. */
#include "fast/gemm/gemm.h"
#include "fast/gemm/gemm_driver.h"
#include "fast/gemm/gemm_kernels.h"

#include <emmintrin.h>
#include <string.h>

#define MAX_ROWS 4
#define GEMM_ROWS LN_GEMM_ROWS_4
#define VEC __m128i
#define VEC_LANES 4
#define VEC_LOAD(p) _mm_load_si128((const __m128i *)(const void *)(p))
#define VEC_STORE(p, v) _mm_storeu_si128((__m128i *)(void *)(p), v)
#define VEC_SET1 _mm_set1_epi32
#define VEC_ZERO _mm_setzero_si128
#define VEC_ADD _mm_add_epi32

static inline VEC VEC_WIDEN(const int8_t *p) {
    __m128i v = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return _mm_srai_epi16(_mm_unpacklo_epi8(v, v), 8);
}

/* The empty statement prevents the compiler from computing all products before the first sum. It does not have enough
 * registers for that, and the speed would be half (measured). */
static inline VEC VEC_PAIRS_ADD(VEC x, VEC y, VEC sum) {
    sum = _mm_add_epi32(sum, _mm_madd_epi16(x, y));
    __asm__ volatile("" : "+x"(sum));
    return sum;
}

#include "kernels_x86/gemm/gemm_s16.inc"

const ln_gemm_set ln_gemm_i8__sse2 = {.a_dtype = LINNET_I16,
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
                                      .store = ln_gemm_store_any};
const ln_gemm_set ln_gemm_i16__sse2 = {.a_dtype = LINNET_I16,
                                       .b_dtype = LINNET_I8,
                                       .c_dtype = LINNET_I64,
                                       .rows = MAX_ROWS,
                                       .width = 2 * VEC_LANES,
                                       .depth = 2,
                                       .takes = 1u << LINNET_I16,
                                       .narrow = &ln_gemm_i8__sse2,
                                       .takes_b = 1u << LINNET_I8 | 1u << LINNET_I16,
                                       .full = full,
                                       .half = half,
                                       .convert = convert,
                                       .row_sums = row_sums,
                                       .store = ln_gemm_store_any};
static const ln_gemm_set *const sets[] = {&ln_gemm_i8__sse2, &ln_gemm_i16__sse2};

LN_GEMM_KERNELS(int__sse2, sets)
