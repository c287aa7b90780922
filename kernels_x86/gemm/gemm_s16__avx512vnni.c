/* gemm_s16__avx512vnni.c - 16-bit activations times 8-bit weights with vpdpwssd, tiles of up to 14 x 32.
 * One instruction multiplies and adds. The sums are added to 64-bit sums as in the other files. */
#include "fast/gemm/gemm_kernels.h"
#include "kernels_x86/gemm/gemm_store__avx512vnni.h"
#include "kernels_x86/gemm/gemm_words__avx512vnni.h"

#include <immintrin.h>
#include <string.h>

#define MAX_ROWS 14
#define GEMM_ROWS LN_GEMM_ROWS_14
#define VEC __m512i
#define VEC_LANES 16
#define VEC_LOAD(p) _mm512_load_si512(p)
#define VEC_STORE(p, v) _mm512_storeu_si512(p, v)
#define VEC_SET1 _mm512_set1_epi32
#define VEC_ZERO _mm512_setzero_si512
#define VEC_ADD _mm512_add_epi32
#define VEC_PAIRS_ADD(x, y, z) _mm512_dpwssd_epi32(z, x, y)
#define VEC_WIDEN(p) _mm512_cvtepi8_epi16(_mm256_load_si256((const __m256i *)(const void *)(p)))

#include "kernels_x86/gemm/gemm_s16.inc"

/* The set for 16-bit activations whose sums fit in 32 bits. */
const ln_gemm_set ln_gemm_i16narrow__avx512vnni = {.a_dtype = LINNET_I16,
                                                   .b_dtype = LINNET_I8,
                                                   .c_dtype = LINNET_I32,
                                                   .rows = MAX_ROWS,
                                                   .width = 2 * VEC_LANES,
                                                   .depth = 2,
                                                   .full = full,
                                                   .half = half,
                                                   .convert = convert,
                                                   .row_sums = row_sums,
                                                   .store = ln_gemm_store__avx512vnni,
                                                   .store_tile = ln_gemm_store_words__avx512vnni,
                                                   .store_sum = ln_gemm_sum_words__avx512vnni,
                                                   .words = true};
const ln_gemm_set ln_gemm_i16__avx512vnni = {.a_dtype = LINNET_I16,
                                             .b_dtype = LINNET_I8,
                                             .c_dtype = LINNET_I64,
                                             .rows = MAX_ROWS,
                                             .width = 2 * VEC_LANES,
                                             .depth = 2,
                                             .takes = 1u << LINNET_I16,
                                             .narrow = &ln_gemm_i16narrow__avx512vnni,
                                             .takes_b = 1u << LINNET_I8 | 1u << LINNET_I16,
                                             .full = full,
                                             .half = half,
                                             .convert = convert,
                                             .row_sums = row_sums,
                                             .store = ln_gemm_store__avx512vnni};
static const ln_gemm_set *const sets[] = {&ln_gemm_i16__avx512vnni};

LN_GEMM_KERNELS(int16__avx512vnni, sets)
