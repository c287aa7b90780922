/* gemm_store__avx2.c - converts rows of integer sums to stored values, eight at a time. */
#include "kernels_x86/gemm/gemm_store__avx2.h"

#include <immintrin.h>

#include "kernels_x86/gemm/gemm_store.inc"

void ln_gemm_store__avx2(const ln_requant *r, int64_t channel, const void *sums, int64_t sums_stride, int64_t rows,
                         int64_t n, void *y, int64_t y_stride) {
    store(r, channel, sums, sums_stride, rows, n, y, y_stride);
}
