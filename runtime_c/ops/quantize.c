/* quantize.c - shape rule and reference kernel of `quantize`: saturate(round_half_even(x / scale) + zero).
 * Scale and zero point come from operands (per tensor, axis or block, like ONNX) or from the output tensor's
 * quantization. */
#include "kernel/kernel.h"
#include "kernel/common/convert.h"
#include "kernel/common/index.h"
#include "kernel/common/quant_operands.h"

#include <math.h>

linnet_status ln_infer_quantize(const ln_infer *infer) {
    const ln_quantize_attributes *a = infer->attributes;
    ln_tensor *y = &infer->outputs[0];
    const ln_tensor *zero = infer->n_inputs > 2 ? &infer->inputs[2] : NULL;
    ln_same_shape(&infer->inputs[0], y);
    if (a->dtype != LINNET_NONE)
        y->dtype = (uint8_t)a->dtype;
    else if (zero && zero->dtype != LINNET_NONE)
        y->dtype = zero->dtype;
    else if (y->dtype == LINNET_NONE)
        y->dtype = LINNET_U8; /* ONNX: uint8 if nothing is specified */
    if (y->dtype != LINNET_I8 && y->dtype != LINNET_U8 && y->dtype != LINNET_I16 && y->dtype != LINNET_U16 &&
        ln_dtype_bits(y->dtype) != 4) {
        ln_fail(infer->error, LINNET_WRONG_DTYPE, "quantize: the output dtype is not supported");
        ln_expected(infer->error, "i4, u4, i8, u8, i16 or u16");
        return ln_got(infer->error, "%s", linnet_dtype_name(y->dtype) ? linnet_dtype_name(y->dtype) : "none");
    }
    return ln_check_quant_operands(infer, a->axis, a->block);
}

static bool can(const ln_call *call) {
    return ln_dtype_is_float(call->inputs[0].dtype) && ln_has_quant_operands(call, &call->outputs[0]);
}

static linnet_status configure(ln_call *call) {
    /* Elements that share bytes are all stored by one thread. */
    call->work[0] = ln_dtype_bits(call->outputs[0].dtype) < 8 ? 1 : ln_count(&call->outputs[0]);
    call->grain = 4096;
    return LINNET_OK;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    (void)thread;
    const ln_quantize_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int64_t low, high;
    ln_quant_range(y->dtype, y->quant ? y->quant->bits : 0, &low, &high);
    if (ln_dtype_bits(y->dtype) < 8) end = ln_clear_packed(b->outputs[0], y);
    for (int64_t i = begin; i < end; i++) {
        float scale;
        int32_t zero;
        ln_quant_at(call, b, y, a->axis, a->block, i, &scale, &zero);
        float q = rintf((float)ln_load_f64(b->inputs[0], x->dtype, ln_offset_of(x, i)) / scale);
        /* Compares before the conversion, so that NaN and infinities are defined: NaN gives the lowest value. */
        int64_t stored = !(q > (float)(low - zero)) ? low : q >= (float)(high - zero) ? high : (int64_t)q + zero;
        ln_store_wrapped(b->outputs[0], y->dtype, ln_offset_of(y, i), stored);
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_quantize = {.can = can, .configure = configure, .run = run};
