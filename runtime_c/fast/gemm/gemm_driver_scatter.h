/* gemm_driver_scatter.h - transposed convolutions to few channels or with a stride, as a product and a sum. */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_SCATTER_H
#define LN_FAST_GEMM_GEMM_DRIVER_SCATTER_H

#include "fast/gemm/gemm.h"

/* The functions of the kernel's ln_kernel_code. They use one f32 set of micro-kernels. */
LN_PLANNING bool ln_gemm_scatter_can(const ln_call *call);
LN_PLANNING void ln_gemm_scatter_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
LN_PLANNING linnet_status ln_gemm_scatter_configure(ln_call *call, const ln_gemm_set *set);
linnet_status ln_gemm_scatter_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                  int thread);

#endif
