/* group_norm.c - shape rule and scalar reference of group normalization; groups = 0 is instance normalization. */
/* f64 is computed in f64; other types in f32, with the bits of the fast kernels in fast/tail/norm.inc.c. */
#include "kernel/cost.h"
#include "kernel/common/lane_sum.h"

#include <math.h>

linnet_status ln_infer_group_norm(const ln_infer *infer) {
    const ln_group_norm_attributes *a = infer->attributes;
    const ln_tensor *x = &infer->inputs[0];
    ln_tensor *y = &infer->outputs[0];
    y->dtype = x->dtype;
    y->rank = x->rank;
    if (x->rank < 0) return LINNET_OK;
    for (int i = 0; i < x->rank; i++) y->dims[i] = x->dims[i];
    int axis = ln_axis(a->channel_axis, x->rank);
    if (axis < 1) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "channel_axis is out of range");
        ln_expected(infer->error, "1 or -1, and x of rank 2 or more");
        return ln_got(infer->error, "%lld with rank %d", (long long)a->channel_axis, x->rank);
    }
    int64_t channels = x->dims[axis];
    if (a->groups < 0 ||
        (a->groups > 0 && channels >= 0 && (a->groups > ln_max(channels, 1) || channels % a->groups != 0))) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "groups does not divide the number of channels");
        ln_expected(infer->error, "0 (one per channel), or a divisor of %lld", (long long)channels);
        return ln_got(infer->error, "%lld", (long long)a->groups);
    }
    for (int i = 1; i < infer->n_inputs; i++) {
        const ln_tensor *t = &infer->inputs[i];
        if (t->dtype == LINNET_NONE || t->rank < 0 ||
            (t->rank == 1 && (t->dims[0] < 0 || channels < 0 || t->dims[0] == channels)))
            continue;
        char text[96];
        ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "the shape of %s does not match the channels of x",
                i == 1 ? "scale" : "bias");
        ln_expected(infer->error, "shape [%lld]", (long long)channels);
        return ln_got(infer->error, "%s", ln_shape_text(t->dims, t->rank, text, sizeof text));
    }
    return LINNET_OK;
}

/* Two sums and four operations per element. */
void ln_count_group_norm(const ln_call *call, ln_counts *counts) {
    counts->work[LN_RATE_MAP] += 2 * (double)ln_count(&call->inputs[0]);
}

static bool reference_can(const ln_call *call) {
    return ln_dtype_is_float(call->inputs[0].dtype) && call->inputs[0].dtype == call->outputs[0].dtype;
}

static int64_t group_count(const ln_call *call, int64_t channels) {
    const ln_group_norm_attributes *a = call->attributes;
    return a->groups == 0 ? channels : a->groups;
}

static linnet_status reference_configure(ln_call *call) {
    const ln_group_norm_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0];
    call->work[0] = x->dims[0] * group_count(call, x->dims[ln_axis(a->channel_axis, x->rank)]);
    call->flops = (uint64_t)(8 * ln_count(x));
    return LINNET_OK;
}

/* Returns the offset of spatial position i (all axes but batch and channel, row-major). */
static int64_t spatial_offset(const ln_tensor *t, int axis, int64_t i) {
    int64_t at = 0;
    for (int d = t->rank - 1; d >= 1; d--) {
        if (d == axis) continue;
        at += i % t->dims[d] * t->strides[d];
        i /= t->dims[d];
    }
    return at;
}

static double parameter(const ln_call *call, const ln_buffers *b, int i, int64_t channel, double fallback) {
    if (i >= call->n_inputs || call->inputs[i].dtype == LINNET_NONE) return fallback;
    return ln_load_f64(b->inputs[i], call->inputs[i].dtype, channel * call->inputs[i].strides[0]);
}

/* Returns the sum of x - mean, or of its squares, over elements [first, first + count) of batch entry n, channel by
 * channel. f64 is summed sequentially. */
static double group_sum(const ln_tensor *x, const void *data, int axis, int64_t n, int64_t first, int64_t size,
                        int64_t positions, double mean, bool squares) {
    double total = 0;
    int64_t count = size * positions;
    for (int64_t start = 0; start < count; start += LN_LANE_BLOCK) {
        float lanes[LN_LANES] = {0};
        for (int64_t i = start; i < ln_min(count, start + LN_LANE_BLOCK); i++) {
            int64_t at =
                n * x->strides[0] + (first + i / positions) * x->strides[axis] + spatial_offset(x, axis, i % positions);
            double v = ln_load_f64(data, x->dtype, at);
            float w = (float)v - (float)mean;
            if (x->dtype == LINNET_F64)
                total += squares ? (v - mean) * (v - mean) : v - mean;
            else
                lanes[i % LN_LANES] += squares ? w * w : w;
        }
        total += x->dtype == LINNET_F64 ? 0 : (double)ln_lanes_added(lanes);
    }
    return total;
}

static linnet_status reference_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    (void)phase, (void)thread;
    const ln_group_norm_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int axis = ln_axis(a->channel_axis, x->rank);
    int64_t channels = x->dims[axis], groups = group_count(call, channels), size = groups > 0 ? channels / groups : 0,
            positions = 1;
    bool wide = x->dtype == LINNET_F64;
    for (int d = 1; d < x->rank; d++) positions *= d == axis ? 1 : x->dims[d];
    double count = (double)(positions * size);
    for (int64_t item = begin; item < end; item++) {
        int64_t n = item / groups, first = item % groups * size;
        double mean = count > 0 ? group_sum(x, b->inputs[0], axis, n, first, size, positions, 0, false) / count : 0;
        mean = wide ? mean : (double)(float)mean;
        double squares = group_sum(x, b->inputs[0], axis, n, first, size, positions, mean, true);
        double inverse = 1 / sqrt((count > 0 ? squares / count : 0) + a->epsilon);
        inverse = wide ? inverse : (double)(float)inverse;
        for (int64_t c = first; c < first + size; c++) {
            double factor = inverse * parameter(call, b, 1, c, 1), shift = parameter(call, b, 2, c, 0) - mean * factor;
            for (int64_t i = 0; i < positions; i++) {
                double v = ln_load_f64(b->inputs[0], x->dtype,
                                       n * x->strides[0] + c * x->strides[axis] + spatial_offset(x, axis, i));
                v = wide ? v * factor + shift : (double)((float)v * (float)factor + (float)shift);
                ln_store_f64(b->outputs[0], y->dtype,
                             n * y->strides[0] + c * y->strides[axis] + spatial_offset(y, axis, i), v);
            }
        }
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_group_norm = {
    .can = reference_can, .configure = reference_configure, .run = reference_run};
