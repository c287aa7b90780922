/* gemm_words__avx512vnni.h - how tiles of sums of products with 16-bit activations become stored values. */
#ifndef LN_GEMM_WORDS_AVX512VNNI_H
#define LN_GEMM_WORDS_AVX512VNNI_H

#include "fast/gemm/gemm.h"

/* The `store_tile` of an ln_gemm_set. */
void ln_gemm_store_words__avx512vnni(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows,
                                     int64_t width, int64_t n, void *y, int64_t y_stride);
/* The `store_sum` of an ln_gemm_set: tiles with a residual. */
void ln_gemm_sum_words__avx512vnni(const ln_requant *r, const ln_quantized_sum *sum, int64_t channel,
                                   const int32_t *sums, int64_t rows, int64_t width, int64_t n, const void *residual,
                                   void *y, int64_t y_stride);

#endif
