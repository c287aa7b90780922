/* gemm_words__avx512vnni.h - converts tiles of integer sums to stored 16-bit numbers with AVX-512, and adds residuals
 * of 16 bits. */
#ifndef LN_GEMM_WORDS_AVX512VNNI_H
#define LN_GEMM_WORDS_AVX512VNNI_H

#include "fast/gemm/gemm.h"

/* The functions `store_tile` and `store_sum` of some sets of micro-kernels. */
ln_gemm_store_tile ln_gemm_store_words__avx512vnni;
ln_gemm_store_sum ln_gemm_sum_words__avx512vnni;

#endif
