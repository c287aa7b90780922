/* gemm_driver_bounds.h - what constant weights prove about the sums of products with 16-bit activations. */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_BOUNDS_H
#define LN_FAST_GEMM_GEMM_DRIVER_BOUNDS_H

#include "fast/gemm/gemm_state.h"

/* Returns in how many parts the weights are multiplied (ln_gemm_b.parts): 2 if they have 16 bits, unless panels have 16
 * bits, too, and the weights are known to be so small that 32 bits hold the sum of LN_GEMM_BOUNDED products. */
int ln_gemm_parts(const ln_tensor *w, int panel_dtype);
/* Tells whether 16-bit weights may be too large for two signed bytes, whose largest number is 256 * 127 + 127. If so,
 * 128 is subtracted from all weights. */
bool ln_gemm_beyond_parts(const ln_tensor *w);
/* Tells whether the constant weights and bias prove that 32 bits hold every sum of 16-bit activations, including
 * partial sums. The requantization that follows must also give the same results for narrow sums. */
bool ln_gemm_fits_narrow(const ln_call *call, const ln_gemm *g, const ln_tensor *w);
/* Returns the number of blocks of LN_GEMM_BOUNDED products whose sums fit in 32 bits, at least 1. */
int64_t ln_gemm_bounded(const ln_gemm *g, const ln_tensor *w);
/* Tells whether all sums have at most 53 bits. */
bool ln_gemm_fits_double(const ln_call *call, const ln_gemm *g);

#endif
