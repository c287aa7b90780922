/* gemm_driver_plan.h - chooses the set of a product, and plans its blocks and its memory. */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_PLAN_H
#define LN_FAST_GEMM_GEMM_DRIVER_PLAN_H

#include "fast/gemm/gemm_state.h"

/* For `cost`: adds the work of the driver to the counts, which have only the products so far. */
void ln_gemm_count(const ln_kernel *kernel, const ln_call *call, ln_counts *counts, const ln_gemm_size *size);

/* Returns the first of n sets that supports the dtypes and the quantization of these operands; NULL if none does.
 * `bias` may be NULL; `inner` is the op's own result; w_axis is the axis of b along the columns. */
const ln_gemm_set *ln_gemm_find_set(const ln_gemm_set *const *sets, int n, const ln_tensor *a, const ln_tensor *b,
                                    const ln_tensor *bias, const ln_tensor *inner, int w_axis, int64_t channels,
                                    int mode);
/* Tells whether the driver can store the output, whose rows are ldc elements apart. Rows must follow each other without
   gaps, unless tiles are written directly. `columns` must be the columns that an epilogue sees, `depth` the number of
   products of a sum. */
bool ln_gemm_output_ok(const ln_call *call, const ln_gemm_set *set, int64_t depth, int64_t ldc, int64_t columns);
/* Plans the integer arithmetic, the layout of panels, the blocks, the memory and the work items. Call this in
   `configure`, after set, sizes and operands of *g are filled in. Errors: OUT_OF_MEMORY, or those of ln_requant_prepare
   and ln_epilogue_prepare. */
linnet_status ln_gemm_plan(ln_call *call, ln_gemm *g, const ln_tensor *w, int w_axis, int64_t channels, int mode);

#endif
