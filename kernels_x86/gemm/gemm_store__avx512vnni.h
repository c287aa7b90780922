/* gemm_store__avx512vnni.h - converts rows of integer sums to stored values with AVX-512. */
#ifndef LN_GEMM_STORE_AVX512VNNI_H
#define LN_GEMM_STORE_AVX512VNNI_H

#include "fast/gemm/gemm.h"

/* The function `store` of some sets of micro-kernels (ln_gemm_store). */
void ln_gemm_store__avx512vnni(const ln_requant *r, int64_t channel, const void *sums, int64_t sums_stride,
                               int64_t rows, int64_t n, void *y, int64_t y_stride);

#endif
