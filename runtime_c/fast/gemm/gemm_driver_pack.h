/* gemm_driver_pack.h - packs B into panels, computes start values, and converts elements of A. */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_PACK_H
#define LN_FAST_GEMM_GEMM_DRIVER_PACK_H

#include "fast/gemm/gemm_state.h"

/* Packs panel number `panel` of B number `matrix` to its place in `panels`, the memory of all panels. `source` is the
 * operand. */
void ln_gemm_pack_panel(const ln_gemm *g, const void *source, int64_t matrix, int64_t panel, void *panels);
/* Computes the start values of columns [first, last) of B number `matrix` (ln_gemm_init), to their places in `init`.
 * bias NULL: there is none. */
void ln_gemm_make_init(const ln_gemm *g, const void *source, const void *bias, int64_t matrix, int64_t first,
                       int64_t last, void *init);

/* A `convert` of sets (ln_gemm_convert) in plain C, for every pair of dtypes. */
void ln_gemm_convert_any(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype, int dst_dtype);

/* Packs `columns` columns into a panel [k][width]. Each column is k contiguous numbers in `from`, and columns are
   `stride` elements apart. The other columns of the panel are not written. */
void ln_gemm_pack_transposed(const float *from, int64_t stride, int64_t k, int64_t columns, int64_t width, float *to);

#endif
