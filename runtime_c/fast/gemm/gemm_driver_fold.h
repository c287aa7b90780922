/* gemm_driver_fold.h - transposed convolutions as convolutions to blocks of the output. */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_FOLD_H
#define LN_FAST_GEMM_GEMM_DRIVER_FOLD_H

#include "fast/gemm/gemm_state.h"

/* Offset of (column n, tap) of a folded B; -1 if no weight reaches there, which counts as its zero point. */
int64_t ln_gemm_fold_at(const ln_gemm *g, int64_t n, int64_t tap);
/* Offset of (column n, tap) for every B, from the start of its matrix. */
static inline int64_t ln_gemm_at(const ln_gemm *g, int64_t n, int64_t tap) {
    return g->fold == NULL ? n * g->b.n + tap * g->b.tap : ln_gemm_fold_at(g, n, tap);
}
/* The tables of requantization for folded columns; and the store of the sums of rows [first, first + count) and
 * columns [column, column + columns), which are ldc apart. lines: memory for count * run sums. */
linnet_status ln_gemm_fold_tables(ln_call *call, ln_gemm *g);
void ln_gemm_unfold(const ln_call *call, const ln_gemm *g, const ln_buffers *b, ln_gemm_range rows,
                    ln_gemm_range columns, const char *sums, int64_t ldc, char *lines);

#endif
