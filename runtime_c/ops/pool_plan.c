/* pool_plan.c - decides which pools the SIMD kernels support, and computes their geometry, which does not depend on the
 * ISA. The loops are in fast/tail/pool.inc.c. */
#include "ops/pool_plan.h"

#include "kernel/cost.h"
#include "kernel/step.h"
#include "ops/pool.h"

#include <math.h>

bool ln_pool_can(const ln_call *call) {
    const ln_pool_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    if (x->dtype != y->dtype || a->kind == LN_POOL_KIND_LP) return false;
    if (call->n_outputs > 1 && call->outputs[1].dtype != LINNET_NONE) return false;
    int axis = a->channel_axis == 1 ? 1 : x->rank - 1;
    if (x->rank < 3 || x->rank > 5 || (x->dims[axis] != 1 && (x->strides[axis] != 1 || y->strides[axis] != 1)))
        return false;
    /* Integers are summed and divided in f32. Sums stay below 2^24, so they are exact. A quotient that is not a tie is
     at least 1 / (2 count) away from a tie, which is more than half a unit in its last place, so it rounds correctly.
   */
    int64_t taps = 1, limit = x->dtype == LINNET_I16 ? 500 : 32768;
    for (int64_t i = 0; i < a->kernel.n; i++)
        taps = taps > 32768 || a->kernel.v[i] > 32768 ? 65536 : taps * a->kernel.v[i];
    return ln_dtype_is_float(x->dtype) || taps <= limit;
}

/* Tells whether the last axis can take the place of the channels: there is one channel, and windows have size 1 along
 * the last axis. Sums over the channels of an image, as in local response normalization, are such pools. */
static bool takes_last_axis(const ln_call *call) {
    const ln_pool_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const int last = x->rank - 1;
    return a->channel_axis == 1 && x->dims[1] == 1 && a->kernel.n > 0 && a->kernel.v[a->kernel.n - 1] == 1 &&
           (a->strides.n == 0 || a->strides.v[a->strides.n - 1] == 1) && x->dims[last] == y->dims[last] &&
           x->strides[last] == 1 && y->strides[last] == 1;
}

void ln_pool_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    const ln_pool_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0];
    const int64_t channels = x->dims[a->channel_axis == 1 && !takes_last_axis(call) ? 1 : x->rank - 1];
    const bool floats = ln_dtype_is_float(x->dtype);
    const bool bytes = x->dtype == LINNET_I8 || x->dtype == LINNET_U8;
    const bool lanes =
        x->dtype == LINNET_F32 || (kernel->needs & LN_HALVES) != 0 || (!floats && a->kind == LN_POOL_KIND_MAX) || bytes;
    /* Elements of dtypes that have no lanes of their own are converted at each tap. */
    ln_scale_operations(counts, !lanes                                   ? (x->dtype == LINNET_I16 ? 28 : 24)
                                : !floats && a->kind != LN_POOL_KIND_MAX ? 1.5
                                                                         : 1);
    const double results = (double)ln_count(&call->outputs[0]);
    counts->work[LN_RATE_MAP] += results * (lanes ? 1.5 : 8);
    counts->work[LN_RATE_MOVE] += 32 * results / (double)ln_max(channels, 1); /* the bounds of each window */
    /* Floats have masked loads and stores, so only a line of less than one vector is slow. */
    if (!floats || channels <= 8) ln_scale_operations(counts, ln_short_lines(kernel, channels));
    if (channels == 1 && x->dtype != LINNET_F32) ln_scale_operations(counts, 2.5);
}

linnet_status ln_pool_configure(ln_call *call) {
    const ln_pool_attributes *a = call->attributes;
    ln_pool_plan *p = call->state = ln_call_state(call, sizeof *p);
    if (p == NULL) return LINNET_OUT_OF_MEMORY;
    linnet_status status = ln_window_pool(a, &call->inputs[0], &p->window, NULL);
    if (status != LINNET_OK) return status;
    const ln_window *w = &p->window;
    const ln_quant *quant = call->inputs[0].quant;
    p->x = ln_window_strides_of(&call->inputs[0], w->channel_axis);
    p->y = ln_window_strides_of(&call->outputs[0], w->channel_axis);
    p->channels = w->out_channels;
    if (takes_last_axis(call)) {
        p->channels = w->out[2];
        p->window.in[2] = p->window.out[2] = 1;
    }
    p->chunks = ln_ceil_div(p->channels, LN_POOL_CHUNK);
    p->kind = (int)a->kind;
    p->count_include_pad = a->count_include_pad != 0;
    p->zero = !ln_dtype_is_float(call->inputs[0].dtype) && quant != NULL && quant->zero != NULL ? quant->zero[0] : 0;
    int dtype = call->inputs[0].dtype;
    p->least = dtype == LINNET_I8 ? INT8_MIN : dtype == LINNET_U8 ? 0 : dtype == LINNET_I16 ? INT16_MIN : -INFINITY;
    call->work[0] = w->batch * w->out[0] * w->out[1] * p->chunks;
    call->flops = (uint64_t)(w->batch * p->channels * ln_window_positions(w) * ln_window_taps(w));
    return LINNET_OK;
}

int64_t ln_pool_count(const ln_pool_plan *p, int64_t oz, int64_t oy, int64_t ox, int64_t inside) {
    const ln_window *w = &p->window;
    if (!p->count_include_pad) return inside;
    return ln_window_padded(w, 0, oz) * ln_window_padded(w, 1, oy) * ln_window_padded(w, 2, ox);
}
