/* gemm_driver_pack.h - packs operands into panels. */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_PACK_H
#define LN_FAST_GEMM_GEMM_DRIVER_PACK_H

#include "fast/gemm/gemm_state.h"

void ln_gemm_pack_panel(const ln_gemm *g, const void *source, int64_t matrix, int64_t panel, void *panels);
void ln_gemm_make_init(const ln_gemm *g, const void *source, const void *bias, int64_t matrix, int64_t first,
                       int64_t last, void *init);

void ln_gemm_convert_any(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype, int dst_dtype);

/* Packs columns into a panel [k][width]. Each column is a run of k numbers, and columns are `stride` apart. Elements
   beyond `columns` are not written. */
void ln_gemm_pack_transposed(const float *from, int64_t stride, int64_t k, int64_t columns, int64_t width, float *to);

#endif
