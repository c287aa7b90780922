/* gemm_driver_conv.h - runs convolutions and transposed convolutions as matrix products. */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_CONV_H
#define LN_FAST_GEMM_GEMM_DRIVER_CONV_H

#include "fast/gemm/gemm_state.h"

/* Tells whether all positions (batch, z, y, x) are evenly spaced in memory. If so, *step becomes the number of elements
 * from one position to the next, or `fallback` if there is only one position. Axes of size 1 do not matter. */
bool ln_gemm_linear(const ln_window_strides *s, int64_t batch, const int64_t *size, int64_t fallback, int64_t *step);

/* `can`, `cost` and `configure` of kernels of conv and conv_transpose, over the n sets of the kernel. Configure puts an
 * ln_gemm into call->state. */
LN_PLANNING bool ln_gemm_conv_can(const ln_call *call, const ln_gemm_set *const *sets, int n);
LN_PLANNING void ln_gemm_conv_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
LN_PLANNING linnet_status ln_gemm_conv_configure(ln_call *call, const ln_gemm_set *const *sets, int n);

#endif
