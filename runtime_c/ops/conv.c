/* conv.c - shape rule and scalar reference of conv: 1 to 3 spatial dimensions, any group, floats and integers.
 * The fast kernels are in runtime_c/fast and kernels_*. All integer kernels give the same bits as this one. */
#include "kernel/common/requant.h"
#include "kernel/common/window.h"
#include "kernel/cost.h"
#include "kernel/step.h"

linnet_status ln_infer_conv(const ln_infer *infer) {
    const ln_conv_attributes *a = infer->attributes;
    const ln_tensor *x = &infer->inputs[0], *w = &infer->inputs[1],
                    *bias = infer->n_inputs > 2 ? &infer->inputs[2] : NULL;
    ln_tensor *y = &infer->outputs[0];
    linnet_status status = ln_infer_product_dtype(x, w, bias, a->output_dtype, &y->dtype, infer->error);
    if (status != LINNET_OK) return status;
    y->rank = -1;
    if (x->rank < 0) return LINNET_OK;
    ln_window window;
    status = ln_window_conv(a, x, w, &window, infer->error);
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

void ln_count_conv(const ln_call *call, ln_counts *counts) {
    const ln_tensor *w = &call->inputs[1];
    const double results = (double)ln_count(call->inner), weights = (double)ln_count(w);
    if (weights > 0) ln_count_macs(call, counts, results * weights / (double)w->dims[0]);
}

/* The state that configure prepares for run. */
typedef struct conv_state {
    ln_window window;
    ln_window_strides x, w, y;
    int64_t bias_stride;
    bool integer;
    ln_requant requant;
} conv_state;

static bool has_bias(const ln_call *call) { return call->n_inputs > 2 && call->inputs[2].dtype != LINNET_NONE; }

static bool reference_can(const ln_call *call) {
    const ln_conv_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = &call->outputs[0];
    if (ln_dtype_is_float(x->dtype))
        return w->dtype == x->dtype && y->dtype == x->dtype && (!has_bias(call) || call->inputs[2].dtype == x->dtype);
    return ln_requant_usable(x, w, 0, has_bias(call) ? &call->inputs[2] : NULL, y, w->dims[0], (int)a->requant);
}

static linnet_status reference_configure(ln_call *call) {
    const ln_conv_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = &call->outputs[0];
    conv_state *s = call->state = ln_call_state(call, sizeof *s);
    if (s == NULL) return LINNET_OUT_OF_MEMORY;
    linnet_status status = ln_window_conv(a, x, w, &s->window, NULL);
    if (status != LINNET_OK) return status;
    s->x = ln_window_strides_of(x, s->window.channel_axis);
    s->w = ln_window_strides_of(w, 1);
    s->y = ln_window_strides_of(y, s->window.channel_axis);
    s->bias_stride = has_bias(call) ? call->inputs[2].strides[0] : 0;
    s->integer = !ln_dtype_is_float(x->dtype);
    if (s->integer) {
        status = ln_requant_prepare(call, x, w, 0, y, s->window.out_channels, (int)a->requant, &s->requant);
        if (status != LINNET_OK) return status;
    }
    int64_t outputs = s->window.batch * s->window.out_channels * ln_window_positions(&s->window);
    call->work[0] = s->window.batch * s->window.out_channels * s->window.out[0] * s->window.out[1];
    call->flops = (uint64_t)(2 * outputs * ln_window_taps(&s->window) * (s->window.in_channels / s->window.group));
    return LINNET_OK;
}

/* A work item is one row of one output channel: batch, channel, z, y. */
typedef struct conv_row {
    int64_t n, c, z, y;
} conv_row;

static conv_row row_of(const ln_window *w, int64_t item) {
    conv_row r;
    r.y = item % w->out[1], item /= w->out[1];
    r.z = item % w->out[0], item /= w->out[0];
    r.c = item % w->out_channels;
    r.n = item / w->out_channels;
    return r;
}

static inline int64_t load_integer(const void *p, int dtype, int64_t i) {
    switch (dtype) {
    case LINNET_I8: return ((const int8_t *)p)[i];
    case LINNET_U8: return ((const uint8_t *)p)[i];
    case LINNET_I16: return ((const int16_t *)p)[i];
    case LINNET_I32: return ((const int32_t *)p)[i];
    default: return ((const int64_t *)p)[i];
    }
}

#define LN_TYPED "ops/conv_typed.inc"
#include "kernel/common/typed.h"

/* Padding is the zero point of x and therefore adds nothing, so taps outside the input are skipped. The sum is
 * unsigned, because only unsigned numbers may wrap in C. */
static void integer_row(const ln_call *call, const ln_buffers *b, const conv_state *s, int64_t item) {
    const ln_window *w = &s->window;
    conv_row r = row_of(w, item);
    int64_t per_group = w->in_channels / w->group, first = r.c / (w->out_channels / w->group) * per_group;
    int x_dtype = call->inputs[0].dtype, w_dtype = call->inputs[1].dtype;
    int64_t x_zero = s->requant.x_zero, w_zero = ln_requant_w_zero(&s->requant, r.c), begin[3], end[3];
    ln_window_valid(w, 0, r.z, &begin[0], &end[0]);
    ln_window_valid(w, 1, r.y, &begin[1], &end[1]);
    for (int64_t ox = 0; ox < w->out[2]; ox++) {
        ln_window_valid(w, 2, ox, &begin[2], &end[2]);
        uint64_t sum = 0;
        if (has_bias(call)) sum = (uint64_t)load_integer(b->inputs[2], call->inputs[2].dtype, r.c * s->bias_stride);
        for (int64_t kz = begin[0]; kz < end[0]; kz++)
            for (int64_t ky = begin[1]; ky < end[1]; ky++)
                for (int64_t kx = begin[2]; kx < end[2]; kx++) {
                    int64_t z = r.z * w->stride[0] - w->pad_begin[0] + kz * w->dilation[0];
                    int64_t y = r.y * w->stride[1] - w->pad_begin[1] + ky * w->dilation[1];
                    int64_t x = ox * w->stride[2] - w->pad_begin[2] + kx * w->dilation[2];
                    int64_t at = r.n * s->x.n + first * s->x.c + z * s->x.s[0] + y * s->x.s[1] + x * s->x.s[2];
                    int64_t tap = r.c * s->w.n + kz * s->w.s[0] + ky * s->w.s[1] + kx * s->w.s[2];
                    for (int64_t c = 0; c < per_group; c++)
                        sum += (uint64_t)((load_integer(b->inputs[0], x_dtype, at + c * s->x.c) - x_zero) *
                                          (load_integer(b->inputs[1], w_dtype, tap + c * s->w.c) - w_zero));
                }
        ln_requant_store(&s->requant, r.c, (int64_t)sum, b->outputs[0],
                         r.n * s->y.n + r.c * s->y.c + r.z * s->y.s[0] + r.y * s->y.s[1] + ox * s->y.s[2]);
    }
}

static linnet_status reference_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    (void)phase, (void)thread;
    const conv_state *s = call->state;
    for (int64_t item = begin; item < end; item++) {
        if (s->integer)
            integer_row(call, b, s, item);
        else
            LN_TYPED_CALL(call->inputs[0].dtype, conv_row, call, b, s, item);
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_conv = {
    .cost = ln_reference_product_cost, .can = reference_can, .configure = reference_configure, .run = reference_run};
