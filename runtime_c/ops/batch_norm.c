/* batch_norm.c - shape rule and scalar reference of batch normalization at inference; each channel is one line. */
/* Converters fold batch normalization into a conv where possible; this op is for the remaining cases. */
#include "kernel/kernel.h"

#include <math.h>

linnet_status ln_infer_batch_norm(const ln_infer *infer) {
    const ln_batch_norm_attributes *a = infer->attributes;
    const ln_tensor *x = &infer->inputs[0];
    static const char names[][9] = {"x", "scale", "bias", "mean", "variance"};
    ln_tensor *y = &infer->outputs[0];
    y->dtype = x->dtype;
    y->rank = x->rank;
    if (x->rank < 0) return LINNET_OK;
    for (int i = 0; i < x->rank; i++) y->dims[i] = x->dims[i];
    int axis = ln_axis(a->channel_axis, x->rank); /* -1 is allowed if x has rank 1: there is one channel */
    if (axis < 0 && x->rank != 1) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "channel_axis is out of range");
        ln_expected(infer->error, "from %d to %d", -x->rank, x->rank - 1);
        return ln_got(infer->error, "%lld", (long long)a->channel_axis);
    }
    int64_t channels = axis < 0 ? 1 : x->dims[axis];
    for (int i = 1; i < 5; i++) {
        const ln_tensor *t = &infer->inputs[i];
        if (t->rank < 0 || (t->rank == 1 && (t->dims[0] < 0 || channels < 0 || t->dims[0] == channels))) continue;
        char text[96];
        ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "the shape of %s does not match the channels of x", names[i]);
        ln_expected(infer->error, "shape [%lld]", (long long)channels);
        return ln_got(infer->error, "%s", ln_shape_text(t->dims, t->rank, text, sizeof text));
    }
    return LINNET_OK;
}

static bool reference_can(const ln_call *call) {
    return ln_dtype_is_float(call->inputs[0].dtype) && call->inputs[0].dtype == call->outputs[0].dtype;
}

static linnet_status reference_configure(ln_call *call) {
    call->work[0] = ln_count(&call->inputs[0]);
    call->grain = 4096;
    call->flops = (uint64_t)(2 * call->work[0]);
    return LINNET_OK;
}

static linnet_status reference_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    (void)phase, (void)thread;
    const ln_batch_norm_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int axis = ln_axis(a->channel_axis, x->rank);
    for (int64_t item = begin; item < end; item++) {
        int64_t in = 0, out = 0, channel = 0, rest = item;
        for (int d = x->rank - 1; d >= 0; d--) {
            int64_t at = rest % x->dims[d];
            rest /= x->dims[d];
            in += at * x->strides[d], out += at * y->strides[d];
            channel = d == axis ? at : channel;
        }
        double p[5];
        for (int i = 1; i < 5; i++)
            p[i] = ln_load_f64(b->inputs[i], call->inputs[i].dtype, channel * call->inputs[i].strides[0]);
        double factor = p[1] / sqrt(p[4] + a->epsilon), shift = p[2] - p[3] * factor;
        double v = ln_load_f64(b->inputs[0], x->dtype, in);
        /* For f32 and narrower dtypes, rounds like the fast kernel, so that the bits are the same. */
        v = x->dtype == LINNET_F64 ? v * factor + shift : (double)((float)v * (float)factor + (float)shift);
        ln_store_f64(b->outputs[0], y->dtype, out, v);
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_batch_norm = {
    .can = reference_can, .configure = reference_configure, .run = reference_run};
