/* dequantize.c - shape rule and reference kernel of `dequantize`: (stored - zero) * scale.
 * Scale and zero point come from operands (per tensor, axis or block, like ONNX) or from the input tensor's
 * quantization. */
#include "base/layout.h"
#include "kernel/common/convert.h"
#include "kernel/common/index.h"
#include "kernel/common/quant_operands.h"
#include "kernel/common/quant_unpack.h"
#include "kernel/kernel.h"

linnet_status ln_infer_dequantize(const ln_infer *infer) {
    const ln_dequantize_attributes *a = infer->attributes;
    ln_tensor *y = &infer->outputs[0];
    ln_same_shape(&infer->inputs[0], y);
    y->dtype = a->dtype == LINNET_NONE ? LINNET_F32 : (uint8_t)a->dtype;
    if (!ln_dtype_is_float(y->dtype)) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "dequantize: the output dtype is not a float");
        ln_expected(infer->error, "f32, f16 or bf16");
        return ln_got(infer->error, "%s", linnet_dtype_name(y->dtype) ? linnet_dtype_name(y->dtype) : "none");
    }
    return ln_check_quant_operands(infer, a->axis, a->block);
}

static bool can(const ln_call *call) {
    return !ln_dtype_is_float(call->inputs[0].dtype) && ln_has_quant_operands(call, &call->inputs[0]);
}

static linnet_status configure(ln_call *call) {
    call->work[0] = ln_count(&call->outputs[0]);
    call->grain = 4096;
    return LINNET_OK;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    (void)thread;
    const ln_dequantize_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    if (!ln_given(call->inputs, call->n_inputs, 1) && y->dtype == LINNET_F32 && ln_is_dense(x) && ln_is_dense(y)) {
        ln_quant_unpack(x, b->inputs[0], begin, end - begin, (float *)b->outputs[0] + begin);
        return LINNET_OK;
    }
    for (int64_t i = begin; i < end; i++) {
        float scale;
        int32_t zero;
        ln_quant_at(call, b, x, a->axis, a->block, i, &scale, &zero);
        int64_t stored = ln_load_i64(b->inputs[0], x->dtype, ln_offset_of(x, i));
        /* An i32 input has zero point 0 in ONNX. For narrower dtypes, stored - zero is exact in f32. */
        float v = (float)(stored - zero) * scale;
        ln_store_float(b->outputs[0], y->dtype, ln_offset_of(y, i), v);
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_dequantize = {.can = can, .configure = configure, .run = run};
