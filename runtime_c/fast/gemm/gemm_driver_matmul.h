/* gemm_driver_matmul.h - runs matmuls as matrix products of the driver. */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_MATMUL_H
#define LN_FAST_GEMM_GEMM_DRIVER_MATMUL_H

#include "fast/gemm/gemm.h"

/* `can`, `configure` and `cost` of kernels of matmul, over the n sets of the kernel. Configure puts an ln_gemm into
 * call->state. */
LN_PLANNING bool ln_gemm_matmul_can(const ln_call *call, const ln_gemm_set *const *sets, int n);
LN_PLANNING linnet_status ln_gemm_matmul_configure(ln_call *call, const ln_gemm_set *const *sets, int n);
LN_PLANNING void ln_gemm_matmul_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);

#endif
