/* gemm_driver.h - packs and runs a planned matrix product (gemm_state.h). Also has functions in plain C that the sets
 * of every ISA can use. */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_H
#define LN_FAST_GEMM_GEMM_DRIVER_H

#include "fast/gemm/gemm.h"

/* Functions `row_sums` of sets (ln_gemm_row_sums) in plain C, one per dtype of A. */
void ln_gemm_row_sums_i8(const void *const *a, int64_t taps, int64_t rows, int64_t kc, int32_t *sums);
void ln_gemm_row_sums_u8(const void *const *a, int64_t taps, int64_t rows, int64_t kc, int32_t *sums);
void ln_gemm_row_sums_i16(const void *const *a, int64_t taps, int64_t rows, int64_t kc, int32_t *sums);

/* ln_gemm_store_any is a `store` of sets (ln_gemm_store) in plain C, for every dtype and mode. ln_gemm_store_row
 * converts one row of n sums, of channels from `channel` on. */
void ln_gemm_store_row(const ln_requant *r, int64_t channel, const void *sums, int64_t n, void *y);
void ln_gemm_store_any(const ln_requant *r, int64_t channel, const void *sums, int64_t sums_stride, int64_t rows,
                       int64_t n, void *y, int64_t y_stride);
/* The functions `pack` and `run` of every kernel that the driver plans; call->state is an ln_gemm. */
void ln_gemm_pack(const ln_call *call, void *packed);
linnet_status ln_gemm_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread);

#endif
