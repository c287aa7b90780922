/* gemm_tile__avx2.h - converts tiles of integer sums to stored values with AVX2. */
#ifndef LN_GEMM_TILE_AVX2_H
#define LN_GEMM_TILE_AVX2_H

#include "fast/gemm/gemm.h"

/* The functions `store_tile` and `store_sum` of some sets of micro-kernels. */
ln_gemm_store_tile ln_gemm_store_tile__avx2;
ln_gemm_store_sum ln_gemm_store_sum__avx2;

#endif
