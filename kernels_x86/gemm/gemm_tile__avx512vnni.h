/* gemm_tile__avx512vnni.h - converts tiles of integer sums to stored values with AVX-512. */
#ifndef LN_GEMM_TILE_AVX512VNNI_H
#define LN_GEMM_TILE_AVX512VNNI_H

#include "fast/gemm/gemm.h"

/* The functions `store_tile` and `store_sum` of some sets of micro-kernels. */
ln_gemm_store_tile ln_gemm_store_tile__avx512vnni;
ln_gemm_store_sum ln_gemm_store_sum__avx512vnni;

#endif
