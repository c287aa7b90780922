/* quant_unpack.h - the real numbers that stored integers stand for, for kernels that read quantized weights directly.
 */
#ifndef LN_QUANT_UNPACK_H
#define LN_QUANT_UNPACK_H

#include "kernel/kernel.h"

/* Tells whether the tensor holds integers whose quantization says which real numbers they stand for. */
static inline bool ln_quant_has_values(const ln_tensor *t) {
    return t->quant != NULL && t->quant->count > 0 && !ln_dtype_is_float(t->dtype) && t->dtype != LINNET_NONE;
}

/* Writes n real numbers: out[i] = (stored - zero) * scale of the element with row-major number first + i.
 * Preconditions: t is dense, ln_quant_has_values(t), and first + n is at most the number of elements. */
void ln_quant_unpack(const ln_tensor *t, const void *data, int64_t first, int64_t n, float *out);

/* Returns the first scale of a line of the last dimension. */
float ln_quant_line_scale(const ln_tensor *t, int64_t line);

#endif
