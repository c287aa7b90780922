/* gemm_store__neon.h - functions that all integer products of 64-bit ARM use: they convert sums to stored values, and
 * sum the rows of A. */
#ifndef LN_ARM_GEMM_GEMM_STORE__NEON_H
#define LN_ARM_GEMM_GEMM_STORE__NEON_H

#include "fast/gemm/gemm.h"

void ln_gemm_store_neon(const ln_requant *r, int64_t channel, const void *sums, int64_t sums_stride, int64_t rows,
                        int64_t n, void *y, int64_t y_stride);
void ln_gemm_store_tile_neon(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows, int64_t width,
                             int64_t n, void *y, int64_t y_stride);
void ln_gemm_store_sum_neon(const ln_requant *r, const ln_quantized_sum *sum, int64_t channel, const int32_t *sums,
                            int64_t rows, int64_t width, int64_t n, const void *residual, void *y, int64_t y_stride);
/* The function `convert` of the sets whose activations are stored as bytes. */
void ln_gemm_convert_bytes_neon(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype);
void ln_gemm_row_sums_i8_neon(const void *const *a, int64_t taps, int64_t rows, int64_t kc, int32_t *sums);
void ln_gemm_row_sums_u8_neon(const void *const *a, int64_t taps, int64_t rows, int64_t kc, int32_t *sums);

#endif
