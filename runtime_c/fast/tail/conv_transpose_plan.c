/* conv_transpose_plan.c - decides which transposed convs the SIMD kernels support, plans their memory, and packs the
 * weights. The loops are in fast/tail/conv_transpose.inc.c. */
#include "fast/tail/conv_transpose_plan.h"

#include "kernel/cost.h"
#include "kernel/step.h"

static bool has_bias(const ln_call *call) { return call->n_inputs > 2 && call->inputs[2].dtype != LINNET_NONE; }

static bool depthwise(const ln_window *g) {
    return g->group > 1 && g->group == g->in_channels && g->group == g->out_channels;
}

static int64_t tap_offset(const ln_window_strides *s, const ln_window *g, int64_t tap) {
    int64_t kx = tap % g->kernel[2], ky = tap / g->kernel[2] % g->kernel[1], kz = tap / g->kernel[2] / g->kernel[1];
    return kz * s->s[0] + ky * s->s[1] + kx * s->s[2];
}

/* Tells whether |bias| + sum |w| * max |x - zero| fits in 32 bits for every output channel. Sums over 8-bit activations
 * wrap by definition. */
static bool sums_fit(const ln_call *call, const ln_window *g) {
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1];
    if (x->dtype != LINNET_I16) return true;
    if (w->data == NULL || (has_bias(call) && call->inputs[2].data == NULL)) return false;
    ln_window_strides ws = ln_window_strides_of(w, 1);
    int64_t zero = x->quant->zero != NULL ? x->quant->zero[0] : 0, reach = ln_max(INT16_MAX - zero, zero - INT16_MIN);
    int64_t out_group = g->out_channels / g->group, in_group = g->in_channels / g->group;
    for (int64_t c = 0; c < g->out_channels; c++) {
        int64_t bias = has_bias(call)
                           ? ln_load_i64(call->inputs[2].data, call->inputs[2].dtype, c * call->inputs[2].strides[0])
                           : 0;
        int64_t w_zero = w->quant->zero == NULL ? 0 : w->quant->zero[w->quant->count > 1 ? c : 0];
        const int parts = w->dtype == LINNET_I16 ? 2 : 1;
        for (int part = 0; part < parts; part++) {
            int64_t sum = 0, first = c / out_group * in_group;
            const int64_t start = parts == 1 ? bias : ln_part_of(bias, part);
            for (int64_t t = 0; t < ln_window_taps(g); t++)
                for (int64_t i = first; i < first + in_group; i++) {
                    int64_t v =
                        ln_load_i64(w->data, w->dtype, i * ws.n + c % out_group * ws.c + tap_offset(&ws, g, t)) -
                        w_zero;
                    if (parts == 2) v = ln_part_of(v, part);
                    sum += v < 0 ? -v : v;
                }
            if (start > INT32_MAX || start < -INT32_MAX || sum > INT32_MAX / reach ||
                sum * reach + (start < 0 ? -start : start) > INT32_MAX)
                return false;
        }
    }
    return true;
}

bool ln_transpose_can(const ln_call *call) {
    const ln_conv_transpose_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = &call->outputs[0];
    ln_window g;
    if (ln_window_conv_transpose(a, x, w, &g, NULL) != LINNET_OK) return false;
    if (ln_window_taps(&g) > LN_TRANSPOSE_TAPS) return false;
    if ((g.in_channels > 1 && x->strides[g.channel_axis] != 1) ||
        (g.out_channels > 1 && y->strides[g.channel_axis] != 1))
        return false;
    if (ln_dtype_is_float(x->dtype))
        return w->dtype == x->dtype && y->dtype == x->dtype && (!has_bias(call) || call->inputs[2].dtype == x->dtype);
    return ln_requant_usable(x, w, 1, has_bias(call) ? &call->inputs[2] : NULL, y, g.out_channels, (int)a->requant) &&
           sums_fit(call, &g);
}

void ln_transpose_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    const ln_tensor *w = &call->inputs[1];
    const ln_conv_transpose_attributes *a = call->attributes;
    const bool floats = ln_dtype_is_float(call->inputs[0].dtype);
    const bool lanes = !floats && a->group > 1 && w->dims[0] == a->group && w->dims[1] == 1; /* vectors of channels */
    bool few = w->dims[1] <= 16 || w->dims[0] <= 32 * a->group, steps = false;
    for (int64_t i = 0; i < a->strides.n; i++) steps = steps || a->strides.v[i] != 1;
    /* Without a stride, the call is a convolution. The matrix product then multiplies no zeros, and it is faster unless
     * its panels are nearly empty. */
    const bool good = floats ? steps : few && (steps || w->dims[1] < 4);
    double each = floats ? 2 : lanes ? 40 : 7; /* times as long as in a matrix product */
    if (w->dtype == LINNET_I16) each *= 2;
    ln_scale_products(counts,
                      (good ? each : each * LN_TRANSPOSE_SLOW) * ln_short_lines(kernel, lanes ? a->group : w->dims[1]));
    /* The integers of each pixel and group are converted by themselves. */
    if (!floats && !lanes && w->dims[1] > 0)
        counts->work[LN_RATE_MOVE] += 8 * (double)(ln_count(call->inner) / w->dims[1]);
}

linnet_status ln_transpose_configure(ln_call *call) {
    const ln_conv_transpose_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = &call->outputs[0];
    ln_transpose_plan *p = call->state = ln_call_state(call, sizeof *p);
    if (p == NULL) return LINNET_OUT_OF_MEMORY;
    linnet_status status = ln_window_conv_transpose(a, x, w, &p->window, NULL);
    if (status != LINNET_OK) return status;
    const ln_window *g = &p->window;
    p->integer = !ln_dtype_is_float(x->dtype);
    /* If each group has one channel, the vectors lie over the groups. The widened copy of x may be read beyond its end.
     */
    p->each = p->integer && depthwise(g);
    p->groups = p->each ? 1 : g->group;
    p->in_group = p->each ? 1 : g->in_channels / g->group, p->out_group = g->out_channels / p->groups;
    const bool dots = p->integer && p->out_group == 1 && p->in_group >= 8;
    p->padded = dots ? 1 : (int64_t)ln_round_up((size_t)p->out_group, LN_TRANSPOSE_LANES);
    p->constant = ln_packable(w) && (!has_bias(call) || ln_packable(&call->inputs[2]));
    p->widen = x->dtype != LINNET_F32;
    p->direct = y->dtype == LINNET_F32 && !p->integer;
    p->x = p->x_stored = ln_window_strides_of(x, g->channel_axis);
    p->y = ln_window_strides_of(y, g->channel_axis);
    p->parts = w->dtype == LINNET_I16 ? 2 : 1;
    p->weights_bytes = (size_t)(p->groups * ln_window_taps(g) * p->in_group * p->padded) * 4;
    p->bias_bytes = (size_t)(p->groups * p->padded) * 4;
    if (p->constant)
        call->packed_bytes = (size_t)p->parts * (p->weights_bytes + p->bias_bytes),
        call->packed_inputs = 1u << 1 | 1u << 2;
    else
        call->scratch_bytes = ln_round_up((size_t)p->parts * (p->weights_bytes + p->bias_bytes), LN_ALIGNMENT);
    if (p->widen) {
        p->x = (ln_window_strides){.c = 1};
        p->x.s[2] = g->in_channels;
        p->x.s[1] = p->x.s[2] * g->in[2];
        p->x.s[0] = p->x.s[1] * g->in[1];
        p->x.n = p->x.s[0] * g->in[0];
        call->scratch_bytes += (size_t)(g->batch * p->x.n + (p->each ? LN_TRANSPOSE_LANES : 0)) * 4;
    }
    if (!p->direct) call->scratch_thread = (size_t)(g->out[2] * g->out_channels * p->parts) * 4;
    call->phases = p->constant && !p->widen ? 1 : 2;
    if (call->phases == 2) /* item 0 packs; each other item widens one row of x */
        call->work[0] = 1 + (p->widen ? g->batch * g->in[0] * g->in[1] : 0);
    call->work[call->phases - 1] = g->batch * g->out[0] * g->out[1];
    call->flops = (uint64_t)(2 * g->batch * g->in[0] * g->in[1] * g->in[2] * g->in_channels * ln_window_taps(g) *
                             (g->out_channels / g->group));
    if (p->integer) return ln_requant_prepare(call, x, w, 1, y, g->out_channels, (int)a->requant, &p->requant);
    return LINNET_OK;
}

static int32_t integer_of(const ln_transpose_plan *p, int64_t v, int part) {
    return (int32_t)(p->parts == 1 ? v : ln_part_of(v, part));
}

static void pack_part(const ln_call *call, const void *weights, const void *bias, int part, void *packed) {
    const ln_transpose_plan *p = call->state;
    const ln_window *g = &p->window;
    const ln_tensor *w = &call->inputs[1];
    ln_window_strides ws = ln_window_strides_of(w, 1);
    char *bias_out = (char *)packed + p->weights_bytes;
    int64_t stride = has_bias(call) ? call->inputs[2].strides[0] : 0, at = 0;
    const int64_t column = p->each ? ws.n : ws.c;
    for (int64_t group = 0; group < p->groups; group++)
        for (int64_t tap = 0; tap < ln_window_taps(g); tap++)
            for (int64_t i = 0; i < p->in_group; i++)
                for (int64_t c = 0; c < p->padded; c++, at++) {
                    bool real = c < p->out_group;
                    int64_t from = real ? (group * p->in_group + i) * ws.n + c * column + tap_offset(&ws, g, tap) : 0;
                    if (!p->integer)
                        ((float *)packed)[at] = real ? (float)ln_load_f64(weights, w->dtype, from) : 0;
                    else
                        ((int32_t *)packed)[at] =
                            real ? integer_of(p,
                                              ln_load_i64(weights, w->dtype, from) -
                                                  ln_requant_w_zero(&p->requant, group * p->out_group + c),
                                              part)
                                 : 0;
                }
    for (int64_t group = 0; group < p->groups; group++)
        for (int64_t c = 0; c < p->padded; c++) {
            int64_t to = group * p->padded + c, from = (group * p->out_group + c) * stride;
            bool real = c < p->out_group && bias != NULL;
            if (!p->integer)
                ((float *)(void *)bias_out)[to] = real ? (float)ln_load_f64(bias, call->inputs[2].dtype, from) : 0;
            else
                ((int32_t *)(void *)bias_out)[to] =
                    real ? integer_of(p, ln_load_i64(bias, call->inputs[2].dtype, from), part) : 0;
        }
}

static void pack(const ln_call *call, const void *weights, const void *bias, void *packed) {
    const ln_transpose_plan *p = call->state;
    for (int part = 0; part < p->parts; part++)
        pack_part(call, weights, bias, part, (char *)packed + (size_t)part * (p->weights_bytes + p->bias_bytes));
}

void ln_transpose_pack(const ln_call *call, void *packed) {
    if (((const ln_transpose_plan *)call->state)->constant)
        pack(call, call->inputs[1].data, has_bias(call) ? call->inputs[2].data : NULL, packed);
}

void ln_transpose_pack_run(const ln_call *call, const ln_buffers *b) {
    if (!((const ln_transpose_plan *)call->state)->constant)
        pack(call, b->inputs[1], has_bias(call) ? b->inputs[2] : NULL, b->scratch);
}

const void *ln_transpose_weights(const ln_call *call, const ln_buffers *b) {
    return ((const ln_transpose_plan *)call->state)->constant ? b->packed : b->scratch;
}

const void *ln_transpose_input(const ln_call *call, const ln_buffers *b) {
    const ln_transpose_plan *p = call->state;
    if (!p->widen) return b->inputs[0];
    size_t before = p->constant ? 0 : ln_round_up((size_t)p->parts * (p->weights_bytes + p->bias_bytes), LN_ALIGNMENT);
    return (const char *)b->scratch + before;
}
