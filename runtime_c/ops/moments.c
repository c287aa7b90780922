/* moments.c - mean and variance per channel, and the sums for the backward pass of batch normalization: shape rule,
 * plan, reference. The method (shifted data, combined parts) is from Chan, Golub and LeVeque, "Algorithms for computing
 * the sample variance", 1983. */
#include "ops/moments.h"

#include "base/layout.h"
#include "kernel/common/index.h"
#include "kernel/cost.h"
#include "kernel/step.h"

#include <math.h>

enum { PART_VALUES = 16384, MOST_PARTS = 16 };

static linnet_status bad_operand(const ln_infer *infer, const char *name, const char *expected) {
    ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "%s is missing, or its dtype or shape does not match x", name);
    return ln_expected(infer->error, "%s", expected);
}

linnet_status ln_infer_moments(const ln_infer *infer) {
    const ln_moments_attributes *a = infer->attributes;
    const ln_tensor *x = &infer->inputs[0];
    int64_t channels = -1;
    if (x->rank >= 0) {
        const int axis = ln_axis(a->channel_axis, x->rank);
        if (axis < 0) {
            ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "channel_axis is out of range");
            ln_expected(infer->error, "from %d to %d", -x->rank, x->rank - 1);
            return ln_got(infer->error, "%lld", (long long)a->channel_axis);
        }
        channels = x->dims[axis];
    }
    if (a->kind == LN_MOMENTS_KIND_PRODUCTS) {
        const ln_tensor *g = infer->n_inputs > 1 ? &infer->inputs[1] : NULL,
                        *mean = infer->n_inputs > 2 ? &infer->inputs[2] : NULL;
        bool fits = g != NULL && g->dtype == x->dtype && (g->rank < 0 || x->rank < 0 || g->rank == x->rank);
        for (int i = 0; fits && i < x->rank && i < g->rank; i++)
            fits = g->dims[i] < 0 || x->dims[i] < 0 || g->dims[i] == x->dims[i];
        if (!fits) return bad_operand(infer, "g", "the dtype and shape of x");
        fits = mean != NULL && mean->dtype == x->dtype && (mean->rank < 0 || mean->rank == 1);
        fits = fits && (mean->rank < 0 || channels < 0 || mean->dims[0] < 0 || mean->dims[0] == channels);
        if (!fits) return bad_operand(infer, "mean", "the dtype of x, shape [channels]");
    }
    for (int o = 0; o < infer->n_outputs; o++) {
        infer->outputs[o].dtype = x->dtype;
        infer->outputs[o].rank = 1;
        infer->outputs[o].dims[0] = channels;
    }
    return LINNET_OK;
}

void ln_count_moments(const ln_call *call, ln_counts *counts) {
    counts->work[LN_RATE_MAP] += 3 * (double)ln_count(&call->inputs[0]);
}

/* Returns the distance in elements between positions, if channels are innermost and all positions are evenly spaced;
   otherwise 0. */
static int64_t row_of(const ln_tensor *t, int axis) {
    if (axis == t->rank - 1 ? !ln_is_dense(t) : axis != 1 || t->rank < 3 || !ln_is_channels_last(t)) return 0;
    return t->dims[axis];
}

static int channel_axis(const ln_call *call) {
    return ln_axis(((const ln_moments_attributes *)call->attributes)->channel_axis, call->inputs[0].rank);
}

static bool is_products(const ln_call *call) {
    return ((const ln_moments_attributes *)call->attributes)->kind == LN_MOMENTS_KIND_PRODUCTS;
}

bool ln_moments_can(const ln_call *call) {
    const ln_tensor *x = &call->inputs[0];
    const int axis = channel_axis(call);
    return ln_count(x) > 0 && row_of(x, axis) != 0 &&
           (!is_products(call) || (row_of(&call->inputs[1], axis) != 0 && ln_is_dense(&call->inputs[2])));
}

linnet_status ln_moments_configure(ln_call *call) {
    const ln_tensor *x = &call->inputs[0];
    ln_moments *p = call->state = ln_call_state(call, sizeof *p);
    if (p == NULL) return LINNET_OUT_OF_MEMORY;
    p->products = is_products(call);
    p->channels = x->dims[channel_axis(call)];
    p->positions = ln_count(x) / p->channels;
    p->x_row = p->g_row = p->channels;
    p->part = ln_max(ln_ceil_div(p->positions, MOST_PARTS), ln_ceil_div(PART_VALUES, p->channels));
    p->parts = ln_ceil_div(p->positions, p->part);
    call->scratch_bytes = (size_t)(p->parts * 3 * p->channels) * sizeof(float);
    call->phases = 2;
    call->work[0] = p->parts;
    call->work[1] = p->channels;
    call->grain = ln_max(1, 65536 / (p->part * p->channels));
    call->flops = (uint64_t)ln_count(x) * 3;
    return LINNET_OK;
}

void ln_moments_finish(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end) {
    const ln_moments *p = call->state;
    const double n = (double)p->positions;
    float *first = b->outputs[0], *second = b->outputs[1];
    for (int64_t c = begin; c < end; c++) {
        double sum = 0, rest = 0;
        for (int64_t i = 0; i < p->parts; i++) {
            const float *part = (const float *)b->scratch + i * 3 * p->channels + c;
            const double count = (double)ln_min(p->part, p->positions - i * p->part);
            sum += (p->products ? 0 : part[0] * count) + part[p->channels];
            rest += part[2 * p->channels];
        }
        if (!p->products) {
            sum /= n, rest = 0;
            for (int64_t i = 0; i < p->parts; i++) {
                const float *part = (const float *)b->scratch + i * 3 * p->channels + c;
                const double count = (double)ln_min(p->part, p->positions - i * p->part);
                const double own = part[p->channels] / count, away = part[0] + own - sum;
                rest += part[2 * p->channels] - own * part[p->channels] + away * away * count;
            }
            rest = rest > 0 ? rest / n : rest * 0; /* NaN stays NaN */
        }
        if (first != NULL) first[c] = (float)sum;
        if (second != NULL) second[c] = (float)rest;
    }
}

static linnet_status reference_configure(ln_call *call) {
    call->work[0] = call->inputs[0].dims[channel_axis(call)];
    return LINNET_OK;
}

/* A work item is a channel. */
static linnet_status reference_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    (void)phase, (void)thread;
    const int axis = channel_axis(call), dtype = call->inputs[0].dtype;
    const bool products = is_products(call);
    const int64_t count = ln_count(&call->inputs[0]) / ln_max(1, call->inputs[0].dims[axis]);
    for (int64_t c = begin; c < end; c++) {
        double mean = 0, first = 0, second = 0;
        if (products) mean = ln_load_f64(b->inputs[2], dtype, ln_offset_of(&call->inputs[2], c));
        for (int pass = products; pass < 2; pass++) {
            ln_tensor x = call->inputs[0], g = call->inputs[products ? 1 : 0];
            x.dims[axis] = g.dims[axis] = 1;
            for (int64_t i = 0; i < count; i++) {
                const double v = ln_load_f64(b->inputs[0], dtype, ln_offset_of(&x, i) + c * x.strides[axis]);
                const double w =
                    products ? ln_load_f64(b->inputs[1], dtype, ln_offset_of(&g, i) + c * g.strides[axis]) : v - mean;
                first += pass == 0 || products ? (products ? w : v) : 0;
                second += pass == 0 ? 0 : w * (v - mean);
            }
            if (!products && pass == 0) mean = first = first / (double)count;
        }
        if (!products) second /= (double)count;
        if (b->outputs[0] != NULL) ln_store_f64(b->outputs[0], dtype, c, first);
        if (b->outputs[1] != NULL) ln_store_f64(b->outputs[1], dtype, c, second);
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_moments = {.configure = reference_configure, .run = reference_run};
