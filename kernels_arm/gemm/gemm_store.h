/* gemm_store.h - how the integer products of 64-bit ARM become stored values; the same code for every instruction set.
 */
#ifndef GEMM_STORE_H
#define GEMM_STORE_H

#include "fast/gemm/gemm.h"

void ln_gemm_store_neon(const ln_requant *r, int64_t channel, const void *sums, int64_t sums_stride, int64_t rows,
                        int64_t n, void *y, int64_t y_stride);
void ln_gemm_store_tile_neon(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows, int64_t width,
                             int64_t n, void *y, int64_t y_stride);

#endif
