/* gemm_driver_packed.h - packs blocks of A in a run, for sets with `pack_rows`. */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_PACKED_H
#define LN_FAST_GEMM_GEMM_DRIVER_PACKED_H

#include "fast/gemm/gemm_state.h"

/* Packs rows [first, first + count) of A tile by tile into the thread's scratch. `base` is the start of the product's
 * A. `part` is the chunk of K; segments and length are those of the chunk (ln_gemm_depth). */
void ln_gemm_pack_block(const ln_gemm *g, const void *base, int64_t first, int64_t count, ln_gemm_range part,
                        int64_t segments, int64_t length, char *scratch);

#endif
