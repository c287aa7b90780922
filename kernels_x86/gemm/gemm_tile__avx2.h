/* gemm_tile__avx2.h - converts tiles of integer sums to stored values with AVX2. */
#ifndef LN_GEMM_TILE_AVX2_H
#define LN_GEMM_TILE_AVX2_H

#include "fast/gemm/gemm.h"

/* The function `store_tile` of some sets of micro-kernels (ln_gemm_store_tile). */
void ln_gemm_store_tile__avx2(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows, int64_t width,
                              int64_t n, void *y, int64_t y_stride);
/* The function `store_sum` of some sets of micro-kernels (ln_gemm_store_sum), for tiles with a residual. */
void ln_gemm_store_sum__avx2(const ln_requant *r, const ln_quantized_sum *sum, int64_t channel, const int32_t *sums,
                             int64_t rows, int64_t width, int64_t n, const void *residual, void *y, int64_t y_stride);

#endif
