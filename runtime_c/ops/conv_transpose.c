/* conv_transpose.c - shape rule and scalar reference of transposed convolution, floats and integers.
 * It is written as a gather: every output position reads the inputs that contribute to it. Work items are therefore
 * independent. */
#include "kernel/common/requant.h"
#include "kernel/common/window.h"
#include "kernel/cost.h"
#include "kernel/step.h"

linnet_status ln_infer_conv_transpose(const ln_infer *infer) {
    const ln_conv_transpose_attributes *a = infer->attributes;
    const ln_tensor *x = &infer->inputs[0], *w = &infer->inputs[1],
                    *bias = infer->n_inputs > 2 ? &infer->inputs[2] : NULL;
    ln_tensor *y = &infer->outputs[0];
    linnet_status status = ln_infer_product_dtype(x, w, bias, a->output_dtype, &y->dtype, infer->error);
    if (status != LINNET_OK) return status;
    y->rank = -1;
    if (x->rank < 0) return LINNET_OK;
    ln_window window;
    status = ln_window_conv_transpose(a, x, w, &window, infer->error);
    if (status != LINNET_OK) return status;
    if (bias != NULL && bias->dtype != LINNET_NONE && bias->rank >= 0 &&
        (bias->rank != 1 || (bias->dims[0] >= 0 && window.out_channels >= 0 && bias->dims[0] != window.out_channels))) {
        char text[96];
        ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "the shape of bias does not match w");
        ln_expected(infer->error, "shape [%lld], one value per output channel", (long long)window.out_channels);
        return ln_got(infer->error, "%s", ln_shape_text(bias->dims, bias->rank, text, sizeof text));
    }
    ln_window_shape(&window, y);
    return LINNET_OK;
}

void ln_count_conv_transpose(const ln_call *call, ln_counts *counts) {
    const ln_tensor *w = &call->inputs[1];
    const ln_conv_transpose_attributes *a = call->attributes;
    const double weights = (double)ln_count(w);
    if (weights <= 0) return;
    /* Each input element has one product per tap and output channel of its group (`scattered`). If the padding cuts off
     * many outputs, there are fewer: at most one per output element, tap and input channel of its group (`gathered`).
     */
    const double scattered = (double)ln_count(&call->inputs[0]) / (double)w->dims[0];
    const double gathered = (double)ln_count(call->inner) / (double)(w->dims[1] * a->group);
    ln_count_macs(call, counts, weights * (scattered < gathered ? scattered : gathered));
}

typedef struct transpose_state {
    ln_window window;
    ln_window_strides x, w, y; /* w: n runs over input channels, c over output channels of a group */
    int64_t bias_stride;
    bool integer;
    ln_requant requant;
} transpose_state;

static bool has_bias(const ln_call *call) { return call->n_inputs > 2 && call->inputs[2].dtype != LINNET_NONE; }

/* Per-axis quantization has one value per output channel along axis 1 of w, so group must be 1 (or axis 1 must have as
   many values as there are output channels). */
static bool reference_can(const ln_call *call) {
    const ln_conv_transpose_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = &call->outputs[0];
    if (ln_dtype_is_float(x->dtype))
        return w->dtype == x->dtype && y->dtype == x->dtype && (!has_bias(call) || call->inputs[2].dtype == x->dtype);
    return ln_requant_usable(x, w, 1, has_bias(call) ? &call->inputs[2] : NULL, y, w->dims[1] * a->group,
                             (int)a->requant);
}

static linnet_status reference_configure(ln_call *call) {
    const ln_conv_transpose_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = &call->outputs[0];
    transpose_state *s = call->state = ln_call_state(call, sizeof *s);
    if (s == NULL) return LINNET_OUT_OF_MEMORY;
    linnet_status status = ln_window_conv_transpose(a, x, w, &s->window, NULL);
    if (status != LINNET_OK) return status;
    s->x = ln_window_strides_of(x, s->window.channel_axis);
    s->w = ln_window_strides_of(w, 1);
    s->y = ln_window_strides_of(y, s->window.channel_axis);
    s->bias_stride = has_bias(call) ? call->inputs[2].strides[0] : 0;
    s->integer = !ln_dtype_is_float(x->dtype);
    const ln_window *g = &s->window;
    call->work[0] = g->batch * g->out_channels * g->out[0] * g->out[1];
    call->flops = (uint64_t)(2 * g->batch * g->in[0] * g->in[1] * g->in[2] * g->in_channels * ln_window_taps(g) *
                             (g->out_channels / g->group));
    if (s->integer) return ln_requant_prepare(call, x, w, 1, y, g->out_channels, (int)a->requant, &s->requant);
    return LINNET_OK;
}

/* Returns the input coordinate that tap k contributes to output position o; -1 if there is none. */
static int64_t source(const ln_window *w, int axis, int64_t o, int64_t k) {
    int64_t at = o + w->pad_begin[axis] - k * w->dilation[axis];
    if (at < 0 || at % w->stride[axis] != 0 || at / w->stride[axis] >= w->in[axis]) return -1;
    return at / w->stride[axis];
}

#define LN_TYPED "ops/conv_transpose_typed.inc"
#include "kernel/common/typed.h"

static void integer_row(const ln_call *call, const ln_buffers *b, const transpose_state *s, int64_t item) {
    const ln_window *w = &s->window;
    int64_t oy = item % w->out[1], oz = item / w->out[1] % w->out[0];
    int64_t oc = item / w->out[1] / w->out[0] % w->out_channels, n = item / w->out[1] / w->out[0] / w->out_channels;
    int64_t out_group = w->out_channels / w->group, in_group = w->in_channels / w->group,
            first = oc / out_group * in_group;
    int x_dtype = call->inputs[0].dtype, w_dtype = call->inputs[1].dtype;
    int64_t x_zero = s->requant.x_zero, w_zero = ln_requant_w_zero(&s->requant, oc);
    for (int64_t ox = 0; ox < w->out[2]; ox++) {
        uint64_t sum = 0;
        if (has_bias(call)) sum = (uint64_t)ln_load_i64(b->inputs[2], call->inputs[2].dtype, oc * s->bias_stride);
        for (int64_t kz = 0; kz < w->kernel[0]; kz++)
            for (int64_t ky = 0; ky < w->kernel[1]; ky++)
                for (int64_t kx = 0; kx < w->kernel[2]; kx++) {
                    int64_t z = source(w, 0, oz, kz), y = source(w, 1, oy, ky), x = source(w, 2, ox, kx);
                    if (z < 0 || y < 0 || x < 0) continue;
                    int64_t at = n * s->x.n + z * s->x.s[0] + y * s->x.s[1] + x * s->x.s[2];
                    int64_t tap = oc % out_group * s->w.c + kz * s->w.s[0] + ky * s->w.s[1] + kx * s->w.s[2];
                    for (int64_t c = first; c < first + in_group; c++)
                        sum += (uint64_t)((ln_load_i64(b->inputs[0], x_dtype, at + c * s->x.c) - x_zero) *
                                          (ln_load_i64(b->inputs[1], w_dtype, tap + c * s->w.n) - w_zero));
                }
        ln_requant_store(&s->requant, oc, (int64_t)sum, b->outputs[0],
                         n * s->y.n + oc * s->y.c + oz * s->y.s[0] + oy * s->y.s[1] + ox * s->y.s[2]);
    }
}

static linnet_status reference_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    (void)phase, (void)thread;
    const transpose_state *s = call->state;
    for (int64_t item = begin; item < end; item++) {
        if (s->integer)
            integer_row(call, b, s, item);
        else
            LN_TYPED_CALL(call->inputs[0].dtype, float_row, call, b, s, item);
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_conv_transpose = {
    .cost = ln_reference_product_cost, .can = reference_can, .configure = reference_configure, .run = reference_run};
