/* softmax.c - shape rule and scalar reference of softmax and log-softmax along one axis. */
/* f64 is computed in f64; other dtypes in f32, step by step like the fast kernels in fast/tail/softmax.inc.c. */
#include "kernel/cost.h"
#include "kernel/common/lane_sum.h"
#include "simd/math.h"

#include <math.h>

linnet_status ln_infer_softmax(const ln_infer *infer) {
    const ln_softmax_attributes *a = infer->attributes;
    const ln_tensor *x = &infer->inputs[0];
    ln_tensor *y = &infer->outputs[0];
    y->dtype = x->dtype;
    y->rank = x->rank;
    for (int i = 0; i < x->rank; i++) y->dims[i] = x->dims[i];
    if (x->rank >= 0 && ln_axis(a->axis, x->rank) < 0) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "axis is out of range");
        ln_expected(infer->error, "from %d to %d", -x->rank, x->rank - 1);
        return ln_got(infer->error, "%lld", (long long)a->axis);
    }
    return LINNET_OK;
}

/* Counts an exponential, a maximum, a sum and a division per element, and the ends of each line. */
void ln_count_softmax(const ln_call *call, ln_counts *counts) {
    const ln_tensor *x = &call->inputs[0];
    const int axis = ln_axis(((const ln_softmax_attributes *)call->attributes)->axis, x->rank);
    const double count = (double)ln_count(x);
    counts->work[LN_RATE_MAP] += 12 * count;
    counts->work[LN_RATE_MOVE] += 40 * count / (double)ln_max(x->dims[axis], 1);
}

static bool reference_can(const ln_call *call) {
    return ln_dtype_is_float(call->inputs[0].dtype) && call->inputs[0].dtype == call->outputs[0].dtype;
}

static linnet_status reference_configure(ln_call *call) {
    const ln_tensor *x = &call->inputs[0];
    int64_t length = x->dims[ln_axis(((const ln_softmax_attributes *)call->attributes)->axis, x->rank)];
    call->work[0] = length > 0 ? ln_count(x) / length : 0;
    call->flops = (uint64_t)(5 * ln_count(x));
    return LINNET_OK;
}

/* Finds the offsets of line number `item` of all lines along `axis`. */
static void line_of(const ln_tensor *x, const ln_tensor *y, int axis, int64_t item, int64_t *in, int64_t *out) {
    *in = *out = 0;
    for (int i = x->rank - 1; i >= 0; i--) {
        if (i == axis) continue;
        *in += item % x->dims[i] * x->strides[i];
        *out += item % x->dims[i] * y->strides[i];
        item /= x->dims[i];
    }
}

static float difference(const void *data, int dtype, int64_t at, float top) {
    return (float)ln_load_f64(data, dtype, at) - top;
}

static float exponential(float v) { return ln_exp_f(-87.0f > v ? -87.0f : v); }

static void line_in_f32(const void *x, int64_t in, int64_t from, int dtype, int64_t length, bool logarithm, void *y,
                        int64_t out, int64_t to) {
    float top = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < length; i++) {
        float v = (float)ln_load_f64(x, dtype, in + i * from);
        top = v > top ? v : top;
    }
    for (int64_t start = 0; start < length; start += LN_LANE_BLOCK) {
        float lanes[LN_LANES] = {0};
        for (int64_t i = start; i < ln_min(length, start + LN_LANE_BLOCK); i++)
            lanes[i % LN_LANES] += exponential(difference(x, dtype, in + i * from, top));
        sum += (double)ln_lanes_added(lanes);
    }
    float factor = 1.0f / (float)sum, less = ln_log_f((float)sum);
    for (int64_t i = 0; i < length; i++) {
        float v = difference(x, dtype, in + i * from, top);
        ln_store_f64(y, dtype, out + i * to, (double)(logarithm ? v - less : exponential(v) * factor));
    }
}

static linnet_status reference_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    (void)phase, (void)thread;
    const ln_softmax_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int axis = ln_axis(a->axis, x->rank), dtype = x->dtype;
    for (int64_t item = begin; item < end; item++) {
        int64_t in, out, length = x->dims[axis], from = x->strides[axis], to = y->strides[axis];
        line_of(x, y, axis, item, &in, &out);
        if (dtype != LINNET_F64) {
            line_in_f32(b->inputs[0], in, from, dtype, length, a->log != 0, b->outputs[0], out, to);
            continue;
        }
        double most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < length; i++) most = fmax(most, ln_load_f64(b->inputs[0], dtype, in + i * from));
        for (int64_t i = 0; i < length; i++) sum += exp(ln_load_f64(b->inputs[0], dtype, in + i * from) - most);
        for (int64_t i = 0; i < length; i++) {
            double v = ln_load_f64(b->inputs[0], dtype, in + i * from) - most;
            ln_store_f64(b->outputs[0], dtype, out + i * to, a->log ? v - log(sum) : exp(v) / sum);
        }
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_softmax = {
    .can = reference_can, .configure = reference_configure, .run = reference_run};
