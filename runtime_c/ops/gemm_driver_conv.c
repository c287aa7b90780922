/* gemm_driver_conv.c - convolutions as products for the driver: one per group, rows are output positions.
 * 1x1 with stride 1 is a plain matrix product; everything else finds its rows through the window. */
#include "ops/gemm_driver.h"

/* Whether positions (batch, z, y, x) lie evenly, *step apart. Axes of size 1 do not matter. */
static bool linear(const ln_window_strides *s, int64_t batch, const int64_t *size, int64_t fallback, int64_t *step) {
    int64_t dims[4] = {batch, size[0], size[1], size[2]}, strides[4] = {s->n, s->s[0], s->s[1], s->s[2]};
    int64_t expected = 0;
    *step = fallback;
    for (int i = 3; i >= 0; i--) {
        if (dims[i] == 1)
            continue;
        if (expected == 0)
            *step = expected = strides[i];
        if (strides[i] != expected || expected <= 0)
            return false;
        expected *= dims[i];
    }
    return true;
}

static bool describe(const ln_call *call, ln_window *w, int64_t *ldc) {
    const ln_tensor *x = &call->inputs[0], *weight = &call->inputs[1], *y = &call->outputs[0];
    if (ln_count(call->inner) <= 0 || ln_count(weight) <= 0 || !ln_is_dense(weight) ||
        ln_window_conv(call->attributes, x, weight, w, NULL) != LINNET_OK)
        return false;
    ln_window_strides s = ln_window_strides_of(y, w->channel_axis);
    return (s.c == 1 || w->out_channels == 1) && linear(&s, w->batch, w->out, w->out_channels, ldc);
}

static const ln_gemm_set *find_set(const ln_call *call, const ln_window *w, const ln_gemm_set *const *sets, int n) {
    const ln_conv_attributes *attributes = call->attributes;
    return ln_gemm_find_set(sets, n, &call->inputs[0], &call->inputs[1], call->n_inputs > 2 ? &call->inputs[2] : NULL,
                            call->inner, 0, w->out_channels, (int)attributes->requant);
}

bool ln_gemm_conv_supports(const ln_call *call, const ln_gemm_set *const *sets, int n) {
    ln_window w;
    int64_t ldc;
    if (!describe(call, &w, &ldc) || find_set(call, &w, sets, n) == NULL)
        return false;
    /* With few columns a group wastes most of a panel: those are for depthwise kernels. */
    if (w.group > 1 && w.out_channels / w.group < 4)
        return false;
    return ln_gemm_output_ok(call, ldc, w.out_channels);
}

linnet_status ln_gemm_conv_configure(ln_call *call, const ln_gemm_set *const *sets, int n) {
    const ln_conv_attributes *attributes = call->attributes;
    const ln_tensor *x = &call->inputs[0], *weight = &call->inputs[1];
    ln_gemm *g = ln_call_state(call, sizeof *g);
    if (g == NULL)
        return LINNET_OUT_OF_MEMORY;
    call->state = g;
    ln_window *w = &g->window;
    if (!describe(call, w, &g->ldc))
        return LINNET_UNSUPPORTED;
    g->set = find_set(call, w, sets, n);
    g->x = ln_window_strides_of(x, w->channel_axis);
    g->m = w->batch * ln_window_positions(w);
    g->n = w->out_channels / w->group;
    g->taps = ln_window_taps(w), g->kc = w->in_channels / w->group;
    g->a_operand = 0, g->a_dtype = x->dtype, g->a_k = g->kc == 1 ? 1 : g->x.c;
    bool still = true;
    for (int i = 0; i < LN_SPATIAL; i++)
        still = still && w->stride[i] == 1 && w->pad_begin[i] == 0 && w->pad_end[i] == 0;
    g->plain = still && g->taps == 1 && linear(&g->x, w->batch, w->in, w->in_channels, &g->a_row);
    g->b_operand = 1, g->b_n = g->taps * g->kc, g->b_tap = 1, g->b_c = g->taps;
    g->bias_operand = call->n_inputs > 2 && call->inputs[2].dtype != LINNET_NONE ? 2 : -1;
    g->bias_n = 1, g->bias_matrix = g->n;
    g->n_products = g->n_matrices = w->group;
    ln_gemm_product *products = ln_call_state(call, (size_t)w->group * sizeof *products);
    int64_t *offsets = ln_call_state(call, (size_t)w->group * sizeof *offsets);
    if (products == NULL || offsets == NULL)
        return LINNET_OUT_OF_MEMORY;
    for (int64_t i = 0; i < w->group; i++) {
        products[i] = (ln_gemm_product){i * g->kc * g->x.c, i, 0, i * g->n};
        offsets[i] = i * g->n * g->b_n;
    }
    g->products = products, g->matrix_offset = offsets;
    return ln_gemm_plan(call, g, weight, 0, w->out_channels, (int)attributes->requant);
}
