/* conv_gradient.c - shape rule and scalar reference of the gradient of conv with respect to its weights.
 * Fast kernels: gemm_driver_gradient.c, and fast/tail/depthwise_gradient.inc.c for one channel per group. */
#include "ops/conv_gradient.h"

#include "kernel/common/index.h"
#include "kernel/cost.h"
#include "kernel/step.h"

linnet_status ln_window_conv_gradient(const ln_conv_gradient_attributes *a, const ln_tensor *x, const ln_tensor *g,
                                      ln_window *w, linnet_error *error) {
    const ln_conv_attributes conv = {.strides = a->strides,
                                     .dilations = a->dilations,
                                     .pads = a->pads,
                                     .group = a->group,
                                     .channel_axis = a->channel_axis};
    ln_tensor weight = {.rank = x->rank, .dims = {-1, -1}};
    if (a->kernel.n != x->rank - 2) {
        ln_fail(error, LINNET_BAD_ATTRIBUTE, "kernel has the wrong length");
        ln_expected(error, "%d values, one per spatial axis", x->rank - 2);
        return ln_got(error, "%lld", (long long)a->kernel.n);
    }
    for (int i = 2; i < x->rank && i < LN_MAX_RANK; i++) {
        weight.dims[i] = a->kernel.v[i - 2];
        if (weight.dims[i] < 1) {
            ln_fail(error, LINNET_BAD_ATTRIBUTE, "kernel is out of range");
            ln_expected(error, "1 or more");
            return ln_got(error, "%lld", (long long)weight.dims[i]);
        }
    }
    if (g->rank == x->rank) weight.dims[0] = g->dims[a->channel_axis == 1 ? 1 : g->rank - 1];
    linnet_status status = ln_window_conv(&conv, x, &weight, w, error);
    if (status != LINNET_OK || g->rank < 0) return status;
    ln_tensor y = {0};
    ln_window_shape(w, &y);
    bool fits = g->rank == x->rank;
    for (int i = 0; fits && i < g->rank; i++) fits = y.dims[i] < 0 || g->dims[i] < 0 || y.dims[i] == g->dims[i];
    if (fits) return LINNET_OK;
    ln_fail(error, LINNET_SHAPE_MISMATCH, "the shape of g differs from the output shape of the conv");
    return ln_hint(error, "pass the gradient of the conv's output");
}

linnet_status ln_infer_conv_gradient(const ln_infer *infer) {
    const ln_conv_gradient_attributes *a = infer->attributes;
    const ln_tensor *x = &infer->inputs[0], *g = &infer->inputs[1];
    ln_tensor *y = &infer->outputs[0];
    y->dtype = x->dtype;
    y->rank = -1;
    if (g->dtype != x->dtype) {
        ln_fail(infer->error, LINNET_WRONG_DTYPE, "the dtypes of g and x differ");
        ln_expected(infer->error, "%s, like x", linnet_dtype_name(x->dtype));
        return ln_got(infer->error, "%s", linnet_dtype_name(g->dtype));
    }
    if (x->rank < 0) return LINNET_OK;
    ln_window w;
    linnet_status status = ln_window_conv_gradient(a, x, g, &w, infer->error);
    if (status != LINNET_OK) return status;
    y->rank = x->rank;
    y->dims[0] = w.out_channels;
    y->dims[1] = w.in_channels < 0 ? -1 : w.in_channels / w.group;
    for (int i = 2; i < x->rank; i++) y->dims[i] = a->kernel.v[i - 2];
    return LINNET_OK;
}

void ln_count_conv_gradient(const ln_call *call, ln_counts *counts) {
    ln_window w;
    if (ln_window_conv_gradient(call->attributes, &call->inputs[0], &call->inputs[1], &w, NULL) == LINNET_OK)
        ln_count_macs(call, counts, (double)(w.batch * ln_window_positions(&w)) * (double)ln_count(&call->outputs[0]));
}

static bool reference_can(const ln_call *call) {
    return call->inputs[0].dtype == call->outputs[0].dtype && call->inputs[1].dtype == call->outputs[0].dtype;
}

static linnet_status reference_configure(ln_call *call) {
    ln_window *w = call->state = ln_call_state(call, sizeof *w);
    if (w == NULL) return LINNET_OUT_OF_MEMORY;
    linnet_status status = ln_window_conv_gradient(call->attributes, &call->inputs[0], &call->inputs[1], w, NULL);
    call->work[0] = ln_count(&call->outputs[0]);
    call->flops = (uint64_t)(2 * w->batch * ln_window_positions(w)) * (uint64_t)call->work[0];
    return status;
}

/* A work item is one weight. */
static linnet_status reference_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    (void)phase, (void)thread;
    const ln_window *w = call->state;
    const int dtype = call->inputs[0].dtype;
    const ln_window_strides x = ln_window_strides_of(&call->inputs[0], w->channel_axis),
                            g = ln_window_strides_of(&call->inputs[1], w->channel_axis);
    const int64_t per_group = w->in_channels / w->group, out_group = w->out_channels / w->group;
    for (int64_t item = begin; item < end; item++) {
        int64_t rest = item, k[LN_SPATIAL], o[LN_SPATIAL], at[LN_SPATIAL];
        for (int i = LN_SPATIAL - 1; i >= 0; i--) k[i] = rest % w->kernel[i], rest /= w->kernel[i];
        const int64_t out = rest / per_group, in = out / out_group * per_group + rest % per_group;
        double sum = 0;
        for (int64_t n = 0; n < w->batch; n++)
            for (int64_t p = 0; p < ln_window_positions(w); p++) {
                bool inside = true;
                rest = p;
                for (int i = LN_SPATIAL - 1; i >= 0; i--) {
                    o[i] = rest % w->out[i], rest /= w->out[i];
                    at[i] = o[i] * w->stride[i] - w->pad_begin[i] + k[i] * w->dilation[i];
                    inside = inside && at[i] >= 0 && at[i] < w->in[i];
                }
                if (!inside) continue;
                sum += ln_load_f64(b->inputs[0], dtype,
                                   n * x.n + in * x.c + at[0] * x.s[0] + at[1] * x.s[1] + at[2] * x.s[2]) *
                       ln_load_f64(b->inputs[1], dtype,
                                   n * g.n + out * g.c + o[0] * g.s[0] + o[1] * g.s[1] + o[2] * g.s[2]);
            }
        ln_store_f64(b->outputs[0], dtype, ln_offset_of(&call->outputs[0], item), sum);
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_conv_gradient = {
    .can = reference_can, .configure = reference_configure, .run = reference_run};
