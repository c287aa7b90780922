/* gemm_driver_conv.h - matrix products of convolutions. */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_CONV_H
#define LN_FAST_GEMM_GEMM_DRIVER_CONV_H

#include "fast/gemm/gemm_state.h"

/* Whether positions (batch, z, y, x) are evenly spaced. *step: elements from one to the next, or `fallback` if there is
 * only one position. Axes of size 1 do not matter. */
bool ln_gemm_linear(const ln_window_strides *s, int64_t batch, const int64_t *size, int64_t fallback, int64_t *step);

LN_PLANNING bool ln_gemm_conv_can(const ln_call *call, const ln_gemm_set *const *sets, int n);
LN_PLANNING void ln_gemm_conv_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
LN_PLANNING linnet_status ln_gemm_conv_configure(ln_call *call, const ln_gemm_set *const *sets, int n);

#endif
