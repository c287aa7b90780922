/* depthwise_gradient.c - decides which weight gradients the depthwise kernels support, splits their sums, and adds up
   the parts. The loops are in fast/tail/depthwise_gradient.inc.c. */
#include "fast/tail/depthwise_gradient.h"

#include "fast/tail/depthwise.h"
#include "kernel/step.h"
#include "ops/conv_gradient.h"

enum { PART_LINES = 4, MOST_PARTS = 8 };

bool ln_depthwise_gradient_can(const ln_call *call) {
    const ln_tensor *x = &call->inputs[0], *g = &call->inputs[1];
    ln_window window;
    if (ln_window_conv_gradient(call->attributes, x, g, &window, NULL) != LINNET_OK) return false;
    return window.group > 1 && window.group == window.in_channels && window.group == window.out_channels &&
           x->strides[window.channel_axis] == 1 && g->strides[window.channel_axis] == 1;
}

linnet_status ln_depthwise_gradient_configure(ln_call *call) {
    ln_depthwise_gradient *p = call->state = ln_call_state(call, sizeof *p);
    if (p == NULL) return LINNET_OUT_OF_MEMORY;
    ln_window *w = &p->window;
    const linnet_status status = ln_window_conv_gradient(call->attributes, &call->inputs[0], &call->inputs[1], w, NULL);
    if (status != LINNET_OK) return status;
    p->x = ln_window_strides_of(&call->inputs[0], w->channel_axis);
    p->g = ln_window_strides_of(&call->inputs[1], w->channel_axis);
    p->channels = w->in_channels;
    p->padded = (int64_t)ln_round_up((size_t)p->channels, LN_DEPTHWISE_LANES);
    const int64_t lines = w->batch * w->out[0] * w->out[1], taps = ln_window_taps(w);
    p->part = ln_max(1, ln_ceil_div(lines, ln_max(1, ln_min(lines / PART_LINES, MOST_PARTS))));
    p->parts = ln_ceil_div(lines, p->part);
    call->scratch_bytes = (size_t)(p->parts * taps * p->padded) * sizeof(float);
    call->phases = 2;
    call->work[0] = p->parts;
    call->work[1] = p->channels;
    call->grain = ln_max(1, 65536 / ln_max(1, p->part * w->out[2] * taps * p->channels / 16));
    call->flops = 2 * (uint64_t)(lines * w->out[2]) * (uint64_t)(taps * p->channels);
    return LINNET_OK;
}

void ln_depthwise_gradient_finish(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end) {
    const ln_depthwise_gradient *p = call->state;
    const int64_t taps = ln_window_taps(&p->window);
    for (int64_t c = begin; c < end; c++)
        for (int64_t tap = 0; tap < taps; tap++) {
            const float *at = (const float *)b->scratch + tap * p->padded + c;
            float sum = 0;
            for (int64_t part = 0; part < p->parts; part++) sum += at[part * taps * p->padded];
            ((float *)b->outputs[0])[c * taps + tap] = sum;
        }
}
