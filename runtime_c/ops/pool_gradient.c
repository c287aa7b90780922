/* pool_gradient.c - shape rule, plan and scalar reference of the gradient of max and average pooling.
 * Windows may overlap. An element sums the contributions of its windows in the order of the windows' positions. */
#include "ops/pool_gradient.h"

#include "base/layout.h"
#include "kernel/common/index.h"
#include "kernel/cost.h"
#include "kernel/step.h"
#include "ops/pool.h"
#include "ops/pool_plan.h"

#include <math.h>

static ln_pool_attributes as_pool(const ln_pool_gradient_attributes *a) {
    return (ln_pool_attributes){.kind = a->kind,
                                .kernel = a->kernel,
                                .strides = a->strides,
                                .dilations = a->dilations,
                                .pads = a->pads,
                                .ceil_mode = a->ceil_mode,
                                .count_include_pad = a->count_include_pad,
                                .channel_axis = a->channel_axis};
}

linnet_status ln_infer_pool_gradient(const ln_infer *infer) {
    const ln_tensor *x = &infer->inputs[0], *g = &infer->inputs[1];
    ln_tensor *dx = &infer->outputs[0], y = {0};
    const ln_pool_attributes a = as_pool(infer->attributes);
    dx->dtype = x->dtype;
    dx->rank = -1;
    if (g->dtype != x->dtype) {
        ln_fail(infer->error, LINNET_WRONG_DTYPE, "the dtypes of g and x differ");
        ln_expected(infer->error, "%s, like x", linnet_dtype_name(x->dtype));
        return ln_got(infer->error, "%s", linnet_dtype_name(g->dtype));
    }
    if (x->rank < 0) return LINNET_OK;
    ln_window w;
    const linnet_status status = ln_window_pool(&a, x, &w, infer->error);
    if (status != LINNET_OK) return status;
    dx->rank = x->rank;
    for (int i = 0; i < x->rank; i++) dx->dims[i] = x->dims[i];
    ln_window_shape(&w, &y);
    bool fits = g->rank < 0 || g->rank == x->rank;
    for (int i = 0; fits && i < g->rank; i++) fits = y.dims[i] < 0 || g->dims[i] < 0 || y.dims[i] == g->dims[i];
    if (fits) return LINNET_OK;
    ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "the shape of g differs from the output shape of the pool");
    return ln_hint(infer->error, "pass the gradient of the pool's output");
}

void ln_count_pool_gradient(const ln_call *call, ln_counts *counts) {
    const ln_pool_gradient_attributes *a = call->attributes;
    double taps = 1;
    for (int64_t i = 0; i < a->kernel.n; i++) taps *= (double)a->kernel.v[i];
    counts->work[LN_RATE_MAP] += taps * (double)ln_count(&call->inputs[call->n_inputs - 1]);
}

/* Plans for the reference and for the SIMD kernels. A work item is one image, or `chunk` of its channels. */
static linnet_status plan(ln_call *call, int64_t chunk) {
    const ln_pool_attributes a = as_pool(call->attributes);
    ln_pool_plan *p = call->state = ln_call_state(call, sizeof *p);
    if (p == NULL) return LINNET_OUT_OF_MEMORY;
    const linnet_status status = ln_window_pool(&a, &call->inputs[0], &p->window, NULL);
    if (status != LINNET_OK) return status;
    const ln_window *w = &p->window;
    p->x = ln_window_strides_of(&call->inputs[0], w->channel_axis);
    p->y = ln_window_strides_of(&call->inputs[1], w->channel_axis);
    p->dx = ln_window_strides_of(&call->outputs[0], w->channel_axis);
    p->channels = w->out_channels;
    p->chunks = ln_ceil_div(p->channels, chunk);
    p->x_image = ln_is_channels_last(&call->inputs[0]) || ln_is_dense(&call->inputs[0]) ? p->x.n : 0;
    p->dx_image = ln_is_channels_last(&call->outputs[0]) || ln_is_dense(&call->outputs[0]) ? p->dx.n : 0;
    p->kind = (int)a.kind;
    p->count_include_pad = a.count_include_pad != 0;
    call->work[0] = w->batch * p->chunks;
    call->flops = (uint64_t)(w->batch * p->channels * ln_window_positions(w) * ln_window_taps(w));
    call->grain = ln_max(1, 32768 / ln_max((int64_t)call->flops / call->work[0], 1));
    return LINNET_OK;
}

bool ln_pool_gradient_can(const ln_call *call) {
    const ln_pool_gradient_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *g = &call->inputs[1], *dx = &call->outputs[0];
    const int axis = a->channel_axis == 1 ? 1 : x->rank - 1;
    return ln_count(x) > 0 &&
           (x->dims[axis] == 1 || (x->strides[axis] == 1 && g->strides[axis] == 1 && dx->strides[axis] == 1));
}

linnet_status ln_pool_gradient_configure(ln_call *call) { return plan(call, LN_POOL_GRADIENT_CHUNK); }

static bool reference_can(const ln_call *call) {
    return call->inputs[0].dtype == call->outputs[0].dtype && call->inputs[1].dtype == call->outputs[0].dtype;
}

static linnet_status reference_configure(ln_call *call) { return plan(call, 1); }

/* Adds the gradient of one window of one channel. */
static void spread(const ln_pool_plan *p, const ln_buffers *b, int dtype, int64_t n, int64_t c, const int64_t *o) {
    const ln_window *w = &p->window;
    int64_t low[3], high[3], best_at = -1, inside = 1;
    for (int i = 0; i < 3; i++) ln_window_valid(w, i, o[i], &low[i], &high[i]), inside *= high[i] - low[i];
    const double g = ln_load_f64(b->inputs[1], dtype,
                                 n * p->y.n + c * p->y.c + o[0] * p->y.s[0] + o[1] * p->y.s[1] + o[2] * p->y.s[2]);
    const double share = g / (double)ln_max(1, ln_pool_count(p, o[0], o[1], o[2], inside));
    double best = 0;
    for (int64_t kz = low[0]; kz < high[0]; kz++)
        for (int64_t ky = low[1]; ky < high[1]; ky++)
            for (int64_t kx = low[2]; kx < high[2]; kx++) {
                const int64_t z = o[0] * w->stride[0] - w->pad_begin[0] + kz * w->dilation[0];
                const int64_t y = o[1] * w->stride[1] - w->pad_begin[1] + ky * w->dilation[1];
                const int64_t x = o[2] * w->stride[2] - w->pad_begin[2] + kx * w->dilation[2];
                const int64_t to = n * p->dx.n + c * p->dx.c + z * p->dx.s[0] + y * p->dx.s[1] + x * p->dx.s[2];
                const double v = ln_load_f64(b->inputs[0], dtype,
                                             n * p->x.n + c * p->x.c + z * p->x.s[0] + y * p->x.s[1] + x * p->x.s[2]);
                if (best_at < 0 || v > best) best = v, best_at = to;
                if (p->kind == LN_POOL_GRADIENT_KIND_AVERAGE)
                    ln_store_f64(b->outputs[0], dtype, to, ln_load_f64(b->outputs[0], dtype, to) + share);
            }
    if (p->kind == LN_POOL_GRADIENT_KIND_MAX && best_at >= 0)
        ln_store_f64(b->outputs[0], dtype, best_at, ln_load_f64(b->outputs[0], dtype, best_at) + g);
}

static linnet_status reference_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    (void)phase, (void)thread;
    const ln_pool_plan *p = call->state;
    const ln_window *w = &p->window;
    const int dtype = call->inputs[0].dtype;
    for (int64_t item = begin; item < end; item++) {
        const int64_t c = item % p->chunks, n = item / p->chunks;
        for (int64_t i = 0; i < w->in[0] * w->in[1] * w->in[2]; i++)
            ln_store_f64(b->outputs[0], dtype,
                         n * p->dx.n + c * p->dx.c + i / w->in[2] / w->in[1] * p->dx.s[0] +
                             i / w->in[2] % w->in[1] * p->dx.s[1] + i % w->in[2] * p->dx.s[2],
                         0);
        for (int64_t i = 0; i < ln_window_positions(w); i++) {
            const int64_t o[3] = {i / w->out[2] / w->out[1], i / w->out[2] % w->out[1], i % w->out[2]};
            spread(p, b, dtype, n, c, o);
        }
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_pool_gradient = {
    .can = reference_can, .configure = reference_configure, .run = reference_run};
