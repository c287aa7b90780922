/* quant_operands.h - the scale and the zero point of quantize and dequantize. They are operands 1 and 2. If these
 * operands are absent, they come from the quantization of the quantized tensor. There is one value per tensor, per
 * slice of an axis, or per block along an axis; operands with one value per block have the rank of x. */
#ifndef LN_QUANT_OPERANDS_H
#define LN_QUANT_OPERANDS_H

#include "kernel/kernel.h"
#include "kernel/common/index.h"

/* Tells whether operand i exists. */
static inline bool ln_given(const ln_tensor *tensors, int n, int i) { return i < n && tensors[i].dtype != LINNET_NONE; }

/* Part of a shape rule: checks the dtype of the scale and the shapes of scale and zero point, as far as they are known.
 * `block` is 0 unless there is a scale per block. Returns LINNET_OK if there is no scale operand, because the
 * quantization of a tensor is checked when the model is loaded. Errors: WRONG_DTYPE, SHAPE_MISMATCH, BAD_ATTRIBUTE. */
LN_PLANNING linnet_status ln_check_quant_operands(const ln_infer *infer, int64_t axis, int64_t block);

/* Tells whether there is a scale at all: an operand, or the quantization of `carrier`, the quantized tensor. */
static inline bool ln_has_quant_operands(const ln_call *call, const ln_tensor *carrier) {
    if (ln_given(call->inputs, call->n_inputs, 1)) return true;
    return carrier->quant && carrier->quant->scheme != LN_QUANT_NONE && carrier->quant->count > 0;
}

/* Sets *scale and *zero for the element of x with row-major number `index`. `carrier` is the quantized tensor. Call
 * this only if ln_has_quant_operands and the shape rule's checks succeeded. */
void ln_quant_at(const ln_call *call, const ln_buffers *b, const ln_tensor *carrier, int64_t axis, int64_t block,
                 int64_t index, float *scale, int32_t *zero);

#endif
