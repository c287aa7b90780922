/* quant_operands.c - checks the scales and zero points of quantize and dequantize, and finds those of one element. */
#include "kernel/common/quant_operands.h"

linnet_status ln_check_quant_operands(const ln_infer *infer, int64_t axis, int64_t block) {
    const ln_tensor *x = &infer->inputs[0];
    if (!ln_given(infer->inputs, infer->n_inputs, 1))
        return LINNET_OK; /* the tensor's quantization was checked when the model was loaded */
    const ln_tensor *scale = &infer->inputs[1];
    if (!ln_dtype_is_float(scale->dtype)) {
        ln_fail(infer->error, LINNET_WRONG_DTYPE, "the scale must be a float tensor");
        ln_expected(infer->error, "f32 or f16");
        return ln_got(infer->error, "%s", linnet_dtype_name(scale->dtype));
    }
    /* The zero point must have the shape of the scale, or be one number for all. */
    int64_t size = ln_count(scale);
    if (ln_given(infer->inputs, infer->n_inputs, 2)) {
        const ln_tensor *zero = &infer->inputs[2];
        bool same = zero->rank == scale->rank;
        for (int i = 0; same && i < scale->rank; i++)
            same = zero->dims[i] < 0 || scale->dims[i] < 0 || zero->dims[i] == scale->dims[i];
        if (zero->rank >= 0 && scale->rank >= 0 && !same && !(ln_count(zero) == 1 && block == 0)) {
            char of_zero[64], of_scale[64];
            ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "the shapes of the zero point and the scale differ");
            ln_expected(infer->error, "%s", ln_shape_text(scale->dims, scale->rank, of_scale, sizeof of_scale));
            return ln_got(infer->error, "%s", ln_shape_text(zero->dims, zero->rank, of_zero, sizeof of_zero));
        }
    }
    if (scale->rank < 0 || x->rank < 0 || size < 0 || (size == 1 && block == 0)) return LINNET_OK;
    int d = ln_axis(axis, x->rank);
    if (d < 0) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "the quantization axis is out of range");
        ln_expected(infer->error, "an axis in [-%d, %d)", x->rank, x->rank);
        return ln_got(infer->error, "%lld", (long long)axis);
    }
    /* The scale must have one number per block of x, or one per slice of the axis. */
    bool fits = true;
    int64_t wanted = x->dims[d];
    if (block > 0) {
        fits = scale->rank == x->rank;
        for (int i = 0; fits && i < x->rank; i++) {
            int64_t expected = x->dims[i] < 0 ? -1 : i == d ? ln_ceil_div(x->dims[i], block) : x->dims[i];
            fits = expected < 0 || scale->dims[i] == expected;
        }
    } else {
        fits = scale->rank == 1 && (wanted < 0 || size == wanted);
    }
    if (fits) return LINNET_OK;
    char text[64];
    ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "the shape of the scale does not match the quantized tensor");
    ln_expected(infer->error,
                block > 0 ? "the tensor's shape, with axis %d divided by the block size"
                          : "one value, or one per slice of axis %d",
                d);
    return ln_got(infer->error, "%s", ln_shape_text(scale->dims, scale->rank, text, sizeof text));
}

void ln_quant_at(const ln_call *call, const ln_buffers *b, const ln_tensor *carrier, int64_t axis, int64_t block,
                 int64_t index, float *scale, int32_t *zero) {
    const ln_tensor *x = &call->inputs[0];
    int64_t coordinates[LN_MAX_RANK];
    for (int d = x->rank - 1; d >= 0; d--) {
        coordinates[d] = index % x->dims[d];
        index /= x->dims[d];
    }
    /* The scale and the zero point are operands. */
    if (ln_given(call->inputs, call->n_inputs, 1)) {
        const ln_tensor *s = &call->inputs[1];
        const ln_tensor *z = ln_given(call->inputs, call->n_inputs, 2) ? &call->inputs[2] : NULL;
        int64_t at = 0, z_at = 0;
        int d = ln_axis(axis, x->rank);
        if (block > 0 && s->rank == x->rank) {
            for (int i = 0; i < x->rank; i++) {
                int64_t c = i == d ? coordinates[i] / block : coordinates[i];
                at += c * s->strides[i];
                z_at += z ? c * z->strides[i] : 0;
            }
        } else if (ln_count(s) != 1) {
            at = coordinates[d] * s->strides[0];
            z_at = z && ln_count(z) != 1 ? coordinates[d] * z->strides[0] : 0;
        }
        *scale = (float)ln_load_f64(b->inputs[1], s->dtype, at);
        *zero = z ? (int32_t)ln_load_i64(b->inputs[2], z->dtype, z_at) : 0;
        return;
    }
    /* The scale and the zero point belong to the tensor's quantization. */
    const ln_quant *q = carrier->quant;
    int64_t at = 0;
    if (q->scheme == LN_QUANT_AXIS) {
        at = coordinates[ln_axis(q->axis, x->rank)];
    } else if (q->scheme == LN_QUANT_BLOCK) {
        /* Scales are row-major over the shape of x, whose block axis is divided by the block size. */
        int d = ln_axis(q->axis, x->rank);
        for (int i = 0; i < x->rank; i++)
            at = at * (i == d ? ln_ceil_div(x->dims[i], q->block) : x->dims[i]) +
                 (i == d ? coordinates[i] / q->block : coordinates[i]);
    }
    if (at >= q->count) at = q->count - 1;
    *scale = q->scale[at];
    *zero = q->zero ? q->zero[at] : 0;
}
