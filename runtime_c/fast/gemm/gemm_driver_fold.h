/* gemm_driver_fold.h - transposed convolutions that are computed as convolutions to blocks of the output
 * (ln_gemm_fold).
 */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_FOLD_H
#define LN_FAST_GEMM_GEMM_DRIVER_FOLD_H

#include "fast/gemm/gemm_state.h"

/* Returns the offset of (column n, tap) in a folded B; -1 if there is no weight, so that the zero point takes its
 * place.
 */
int64_t ln_gemm_fold_at(const ln_gemm *g, int64_t n, int64_t tap);
/* Returns the offset of (column n, tap) in B, folded or not. Offsets are in elements from the start of the matrix. */
static inline int64_t ln_gemm_at(const ln_gemm *g, int64_t n, int64_t tap) {
    return g->fold == NULL ? n * g->b.n + tap * g->b.tap : ln_gemm_fold_at(g, n, tap);
}
/* Repeats the tables of requantization for all folded columns, in memory of the call's plan. Errors: OUT_OF_MEMORY. */
linnet_status ln_gemm_fold_tables(ln_call *call, ln_gemm *g);
/* Stores the sums of a block: the given rows and columns, whose rows are ldc elements apart in `sums`. `lines` is
 * scratch memory with space for fold->run sums of each row. */
void ln_gemm_unfold(const ln_call *call, const ln_gemm *g, const ln_buffers *b, ln_gemm_range rows,
                    ln_gemm_range columns, const char *sums, int64_t ldc, char *lines);

#endif
