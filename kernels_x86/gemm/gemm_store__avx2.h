/* gemm_store__avx2.h - converts rows of integer sums to stored values with AVX2. */
#ifndef LN_GEMM_STORE_AVX2_H
#define LN_GEMM_STORE_AVX2_H

#include "fast/gemm/gemm.h"

/* The function `store` of some sets of micro-kernels (ln_gemm_store). */
void ln_gemm_store__avx2(const ln_requant *r, int64_t channel, const void *sums, int64_t sums_stride, int64_t rows,
                         int64_t n, void *y, int64_t y_stride);

#endif
