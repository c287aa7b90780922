/* gemm_driver_gradient.h - weight gradients of convolutions. */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_GRADIENT_H
#define LN_FAST_GEMM_GEMM_DRIVER_GRADIENT_H

#include "fast/gemm/gemm.h"

/* The functions of the kernel's ln_kernel_code. They use one f32 set of micro-kernels. */
LN_PLANNING bool ln_gemm_gradient_can(const ln_call *call);
LN_PLANNING linnet_status ln_gemm_gradient_configure(ln_call *call, const ln_gemm_set *set);
linnet_status ln_gemm_gradient_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread);

#endif
