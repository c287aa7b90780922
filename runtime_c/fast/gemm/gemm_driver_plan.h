/* gemm_driver_plan.h - plans the blocks and the memory of a product. */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_PLAN_H
#define LN_FAST_GEMM_GEMM_DRIVER_PLAN_H

#include "fast/gemm/gemm_state.h"

/* Adds to the counts what the driver does besides the products. */
void ln_gemm_count(const ln_kernel *kernel, const ln_call *call, ln_counts *counts, const ln_gemm_size *size);

/* The set that supports this call's dtypes, or NULL. */
const ln_gemm_set *ln_gemm_find_set(const ln_gemm_set *const *sets, int n, const ln_tensor *a, const ln_tensor *b,
                                    const ln_tensor *bias, const ln_tensor *inner, int w_axis, int64_t channels,
                                    int mode);
/* Whether the output can be stored. Its rows must be dense; if tiles are written directly, they may be any distance
   apart. Its columns must be the columns that an epilogue sees. */
bool ln_gemm_output_ok(const ln_call *call, int64_t ldc, int64_t columns);
/* Call this after the operands are described. Sets up the integer arithmetic, the layout of panels, the blocks and the
   memory. */
linnet_status ln_gemm_plan(ln_call *call, ln_gemm *g, const ln_tensor *w, int w_axis, int64_t channels, int mode);

#endif
