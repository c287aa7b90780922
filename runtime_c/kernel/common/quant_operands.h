/* quant_operands.h - the scale and zero point of quantize and dequantize, from operands 1 and 2 or from a tensor's
 * quantization. There is one value per tensor, per slice of an axis, or per block along an axis (an operand of x's
 * rank). */
#ifndef LN_QUANT_OPERANDS_H
#define LN_QUANT_OPERANDS_H

#include "kernel/kernel.h"
#include "kernel/common/index.h"

static inline bool ln_given(const ln_tensor *tensors, int n, int i) { return i < n && tensors[i].dtype != LINNET_NONE; }

/* Checks the shapes of the operands. Without a scale operand, the quantization of the quantized tensor is used, which
 * was checked when the model was loaded. */
LN_PLANNING linnet_status ln_check_quant_operands(const ln_infer *infer, int64_t axis, int64_t block);

static inline bool ln_has_quant_operands(const ln_call *call, const ln_tensor *carrier) {
    if (ln_given(call->inputs, call->n_inputs, 1)) return true;
    return carrier->quant && carrier->quant->scheme != LN_QUANT_NONE && carrier->quant->count > 0;
}

/* The scale and zero point of the element with row-major number `index`. `carrier` is the quantized tensor. */
void ln_quant_at(const ln_call *call, const ln_buffers *b, const ln_tensor *carrier, int64_t axis, int64_t block,
                 int64_t index, float *scale, int32_t *zero);

#endif
