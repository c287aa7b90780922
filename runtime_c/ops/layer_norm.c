/* layer_norm.c - shape rule and scalar reference of layer normalization (and RMS normalization) over trailing axes. */
/* f64 is computed in f64; other types in f32, with the bits of the fast kernels in fast/tail/norm.inc.c. */
#include "kernel/cost.h"
#include "kernel/common/lane_sum.h"

#include <math.h>

/* scale and bias are broadcast to the shape of x, aligned at the right; x itself is not broadcast (ONNX
   LayerNormalization). */
static linnet_status check_parameter(const ln_infer *infer, int i, int axis) {
    const ln_tensor *x = &infer->inputs[0], *t = i < infer->n_inputs ? &infer->inputs[i] : NULL;
    char text[96], text_x[96];
    if (t == NULL || t->dtype == LINNET_NONE || t->rank < 0) return LINNET_OK;
    bool fits = t->rank <= x->rank - axis;
    for (int d = 0; d < t->rank && fits; d++) {
        int64_t size = x->dims[x->rank - t->rank + d];
        fits = t->dims[d] < 0 || size < 0 || t->dims[d] == 1 || t->dims[d] == size;
    }
    if (fits) return LINNET_OK;
    ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "the shape of %s does not broadcast to the normalized axes of x",
            i == 1 ? "scale" : "bias");
    ln_expected(infer->error, "a shape that broadcasts to the last %d dimensions of %s", x->rank - axis,
                ln_shape_text(x->dims, x->rank, text_x, sizeof text_x));
    return ln_got(infer->error, "%s", ln_shape_text(t->dims, t->rank, text, sizeof text));
}

linnet_status ln_infer_layer_norm(const ln_infer *infer) {
    const ln_layer_norm_attributes *a = infer->attributes;
    const ln_tensor *x = &infer->inputs[0];
    int axis = x->rank >= 0 ? ln_axis(a->axis, x->rank) : 0;
    if (axis < 0) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "axis is out of range");
        ln_expected(infer->error, "from %d to %d", -x->rank, x->rank - 1);
        return ln_got(infer->error, "%lld", (long long)a->axis);
    }
    for (int i = 0; i < infer->n_outputs; i++) {
        ln_tensor *t = &infer->outputs[i];
        t->dtype = i == 0 ? x->dtype : x->dtype == LINNET_F64 ? LINNET_F64 : LINNET_F32;
        t->rank = x->rank;
        for (int d = 0; d < x->rank; d++) t->dims[d] = i > 0 && d >= axis ? 1 : x->dims[d];
    }
    if (x->rank < 0) return LINNET_OK;
    linnet_status status = check_parameter(infer, 1, axis);
    return status != LINNET_OK ? status : check_parameter(infer, 2, axis);
}

/* Two sums and four operations per element. */
void ln_count_layer_norm(const ln_call *call, ln_counts *counts) {
    counts->work[LN_RATE_MAP] += 10 * (double)ln_count(&call->inputs[0]);
}

static bool present(const ln_call *call, int i) { return i < call->n_inputs && call->inputs[i].dtype != LINNET_NONE; }

static bool reference_can(const ln_call *call) {
    return ln_dtype_is_float(call->inputs[0].dtype) && call->inputs[0].dtype == call->outputs[0].dtype;
}

static int64_t count_from(const ln_tensor *x, int begin, int end) {
    int64_t count = 1;
    for (int i = begin; i < end; i++) count *= x->dims[i];
    return count;
}

static linnet_status reference_configure(ln_call *call) {
    const ln_layer_norm_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0];
    call->work[0] = count_from(x, 0, ln_axis(a->axis, x->rank));
    call->flops = (uint64_t)(8 * ln_count(x));
    return LINNET_OK;
}

/* Returns the offset in t of element number i, which is counted row-major over the axes [begin, end) of x. t is aligned
 * with the last axes of x and broadcasts. */
static int64_t offset(const ln_tensor *x, const ln_tensor *t, int begin, int end, int64_t i) {
    int64_t at = 0;
    for (int d = end - 1; d >= begin; d--) {
        int own = d - (x->rank - t->rank);
        if (own >= 0 && t->dims[own] != 1) at += i % x->dims[d] * t->strides[own];
        i /= x->dims[d];
    }
    return at;
}

/* An operation in f64 on f32 operands, rounded to f32, gives the same bits as the operation in f32. */
static double rounded(double v, bool wide) { return wide ? v : (double)(float)v; }

/* Returns the sum of x - mean, or of its squares, over the line that starts at `in`. f64 is summed sequentially. */
static double line_sum(const ln_tensor *x, const void *data, int axis, int64_t in, int64_t count, double mean,
                       bool squares) {
    double total = 0;
    for (int64_t start = 0; start < count; start += LN_LANE_BLOCK) {
        float lanes[LN_LANES] = {0};
        for (int64_t i = start; i < ln_min(count, start + LN_LANE_BLOCK); i++) {
            double v = ln_load_f64(data, x->dtype, in + offset(x, x, axis, x->rank, i));
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
    const ln_layer_norm_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int axis = ln_axis(a->axis, x->rank), rank = x->rank;
    int64_t count = count_from(x, axis, rank);
    for (int64_t item = begin; item < end; item++) {
        int64_t in = offset(x, x, 0, axis, item), out = offset(x, y, 0, axis, item);
        double mean = count > 0 && !a->rms ? line_sum(x, b->inputs[0], axis, in, count, 0, false) / (double)count : 0;
        bool wide = x->dtype == LINNET_F64;
        mean = wide ? mean : (double)(float)mean;
        double squares = line_sum(x, b->inputs[0], axis, in, count, mean, true);
        double inverse = 1 / sqrt((count > 0 ? squares / (double)count : 0) + a->epsilon);
        inverse = wide ? inverse : (double)(float)inverse;
        for (int64_t i = 0; i < count; i++) {
            double v = ln_load_f64(b->inputs[0], x->dtype, in + offset(x, x, axis, rank, i)) - mean;
            v = rounded(v, wide);
            v = rounded(v * inverse, wide);
            if (present(call, 1))
                v = rounded(
                    v * ln_load_f64(b->inputs[1], call->inputs[1].dtype, offset(x, &call->inputs[1], axis, rank, i)),
                    wide);
            if (present(call, 2))
                v = rounded(
                    v + ln_load_f64(b->inputs[2], call->inputs[2].dtype, offset(x, &call->inputs[2], axis, rank, i)),
                    wide);
            ln_store_f64(b->outputs[0], y->dtype, out + offset(x, y, axis, rank, i), v);
        }
        for (int i = 1; i < call->n_outputs; i++)
            if (call->outputs[i].dtype != LINNET_NONE)
                ln_store_f64(b->outputs[i], call->outputs[i].dtype, offset(x, &call->outputs[i], 0, axis, item),
                             i == 1 ? mean : inverse);
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_layer_norm = {
    .can = reference_can, .configure = reference_configure, .run = reference_run};
