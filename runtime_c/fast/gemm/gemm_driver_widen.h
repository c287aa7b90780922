/* gemm_driver_widen.h - widens the part of an image or a matrix that a block of rows reads to the micro-kernel's dtype.
 * A convolution then reads each pixel through pointers, instead of widening it again for every tap. */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_WIDEN_H
#define LN_FAST_GEMM_GEMM_DRIVER_WIDEN_H

#include "fast/gemm/gemm_state.h"

/* Tells whether a kernel widens an A of this dtype: the bytes are multiplied as 16-bit numbers. */
static inline bool ln_gemm_widened_by(const ln_kernel *kernel, int dtype) {
    return ln_dtype_size((linnet_dtype)dtype) == 1 && (kernel->takes[0] >> LINNET_I16 & 1);
}
/* Tells whether 8-bit A is contiguous and fewer elements must be widened than the rows of A have. */
bool ln_gemm_widens(const ln_gemm *g);
/* Returns the most bytes that a block's part of A has after it is widened. The blocks must be planned. */
int64_t ln_gemm_widened_bytes(const ln_gemm *g);
/* Widens to `out` what rows [first, first + count) read. `base` is the start of the product's A. Returns where the
 * widened A would start if all of it were at its place relative to `out`. */
const char *ln_gemm_widen(const ln_gemm *g, const char *base, int64_t first, int64_t count, char *out);

#endif
