/* gemm_tile.h - the functions that store tiles of integer sums on x86 (gemm_tile__avx512vnni.c). */
#ifndef LN_GEMM_TILE_H
#define LN_GEMM_TILE_H

#include "fast/gemm/gemm.h"

void ln_gemm_store_tile__avx512vnni(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows,
                                    int64_t width, int64_t n, void *y, int64_t y_stride);
void ln_gemm_store_sum__avx512vnni(const ln_requant *r, const ln_quantized_sum *sum, int64_t channel,
                                   const int32_t *sums, int64_t rows, int64_t width, int64_t n, const void *residual,
                                   void *y, int64_t y_stride);
/* The same for sums of products with 16-bit activations (gemm_words__avx512vnni.c). */
void ln_gemm_store_words__avx512vnni(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows,
                                     int64_t width, int64_t n, void *y, int64_t y_stride);
void ln_gemm_sum_words__avx512vnni(const ln_requant *r, const ln_quantized_sum *sum, int64_t channel,
                                   const int32_t *sums, int64_t rows, int64_t width, int64_t n, const void *residual,
                                   void *y, int64_t y_stride);
/* With AVX2: gemm_tile__avx2.c, and gemm_store.inc in gemm_s16__avx2.c. */
void ln_gemm_store_tile__avx2(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows, int64_t width,
                              int64_t n, void *y, int64_t y_stride);
void ln_gemm_store_sum__avx2(const ln_requant *r, const ln_quantized_sum *sum, int64_t channel, const int32_t *sums,
                             int64_t rows, int64_t width, int64_t n, const void *residual, void *y, int64_t y_stride);
void ln_gemm_store__avx2(const ln_requant *r, int64_t channel, const void *sums, int64_t sums_stride, int64_t rows,
                         int64_t n, void *y, int64_t y_stride);

#endif
