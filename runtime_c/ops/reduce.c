/* reduce.c - shape rule and reference kernel of `reduce`: every kind, any axes, any strides, any dtype.
 * Floats of up to 32 bits are summed in the order of lane_sum.h, f64 sequentially, and integers in i64 with wrapping.
 */
#include "kernel/common/convert.h"
#include "kernel/common/index.h"
#include "kernel/common/lane_sum.h"
#include "kernel/cost.h"
#include "ops/reduce_plan.h"

#include <math.h>

linnet_status ln_infer_reduce(const ln_infer *infer) {
    const ln_reduce_attributes *a = infer->attributes;
    const ln_tensor *x = &infer->inputs[0];
    ln_tensor *y = &infer->outputs[0];
    bool arg = a->kind == LN_REDUCE_KIND_ARGMAX || a->kind == LN_REDUCE_KIND_ARGMIN, bad;
    uint32_t mask;
    if (arg)
        y->dtype = LINNET_I64;
    else if (!(y->dtype == LINNET_F32 && x->quant))
        y->dtype = x->dtype;
    bool known = ln_reduce_mask(a, infer->inputs, infer->n_inputs, &mask, &bad);
    if (bad) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "reduce: an axis is out of range");
        return ln_expected(infer->error, "axes in [-%d, %d)", x->rank, x->rank);
    }
    if (x->rank < 0 || (!known && (!a->keep_dims || x->rank == 0))) {
        y->rank = -1;
        return LINNET_OK;
    }
    int rank = 0, reduced = 0;
    for (int d = 0; d < x->rank; d++) {
        bool gone = known && (mask >> d & 1u);
        reduced += gone;
        if (gone && !a->keep_dims) continue;
        y->dims[rank++] = !known ? -1
                          : gone ? 1
                                 : x->dims[d]; /* stays unknown even if the dim is 1, until the axes are known */
    }
    y->rank = (int8_t)rank;
    if (arg && known && reduced != 1 && x->rank > 1) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "argmax and argmin reduce exactly one axis");
        return ln_got(infer->error, "%d axes", reduced);
    }
    return LINNET_OK;
}

void ln_count_reduce(const ln_call *call, ln_counts *counts) {
    const int64_t kind = ((const ln_reduce_attributes *)call->attributes)->kind;
    double each = kind == LN_REDUCE_KIND_LOG_SUM_EXP ? 14 : 1.4;
    if (call->inputs[0].dtype != LINNET_F32) each += 4; /* elements are converted to f32 */
    counts->work[LN_RATE_MAP] += each * (double)ln_count(&call->inputs[0]);
    counts->work[LN_RATE_MOVE] += 16 * (double)ln_count(&call->outputs[0]);
}

static bool can(const ln_call *call) {
    uint32_t mask;
    bool bad;
    return ln_reduce_mask(call->attributes, call->inputs, call->n_inputs, &mask, &bad);
}

static linnet_status configure(ln_call *call) {
    int64_t count = ln_count(&call->outputs[0]);
    call->work[0] = count;
    call->grain = ln_max(1, 4096 / ln_max(1, ln_count(&call->inputs[0]) / ln_max(1, count)));
    return LINNET_OK;
}

typedef struct walk {
    const void *data;
    const ln_tensor *x;
    ln_tensor inner; /* x, with the kept dims set to 1 */
    int64_t base, count;
} walk;

static int64_t element_at(const walk *w, int64_t k) { return w->base + ln_offset_of(&w->inner, k); }

/* Returns the value as double, dequantized if the tensor has quantization and the output is f32. */
static double value_at(const walk *w, int64_t k, bool dequantize) {
    int64_t at = element_at(w, k);
    if (!dequantize) return ln_load_f64(w->data, w->x->dtype, at);
    const ln_quant *q = w->x->quant;
    int64_t stored = ln_load_i64(w->data, w->x->dtype, at);
    return (double)((float)(stored - (q->zero ? q->zero[0] : 0)) * q->scale[0]);
}

/* Computes sums and extremes of values that f32 holds exactly, in the order that all kernels use. Quantized values are
 * summed as integers, and the scale is applied to the sum. */
static double reduce_lanes(const walk *w, int64_t kind, bool dequantize) {
    bool whole = dequantize && (kind == LN_REDUCE_KIND_SUM || kind == LN_REDUCE_KIND_MEAN);
    bool largest = kind == LN_REDUCE_KIND_MAX, extreme = largest || kind == LN_REDUCE_KIND_MIN;
    const ln_quant *q = w->x->quant;
    double total = extreme ? (largest ? -INFINITY : INFINITY) : 0.0;
    for (int64_t start = 0; start < w->count; start += LN_LANE_BLOCK) {
        float lanes[LN_LANES];
        for (int i = 0; i < LN_LANES; i++) lanes[i] = !extreme ? 0.0f : largest ? -INFINITY : INFINITY;
        for (int64_t k = start; k < ln_min(w->count, start + LN_LANE_BLOCK); k++) {
            float *lane = &lanes[k % LN_LANES], v;
            if (whole)
                v = (float)(ln_load_i64(w->data, w->x->dtype, element_at(w, k)) - (q->zero ? q->zero[0] : 0));
            else
                v = (float)value_at(w, k, dequantize);
            if (extreme)
                *lane = ln_extreme(*lane, v, largest);
            else
                *lane += kind == LN_REDUCE_KIND_L1                                        ? fabsf(v)
                         : kind == LN_REDUCE_KIND_L2 || kind == LN_REDUCE_KIND_SUM_SQUARE ? v * v
                                                                                          : v;
        }
        if (extreme)
            total = (double)ln_extreme((float)total, ln_lanes_extreme(lanes, largest), largest);
        else
            total += (double)ln_lanes_added(lanes);
    }
    return ln_reduce_result(kind, total, whole ? q->scale[0] : 1.0f, w->count);
}

static double reduce_floats(const walk *w, int64_t kind, bool dequantize) {
    if (w->x->dtype != LINNET_F64 && (kind == LN_REDUCE_KIND_LOG_SUM))
        return log(reduce_lanes(w, LN_REDUCE_KIND_SUM, dequantize));
    if (w->x->dtype != LINNET_F64 && kind != LN_REDUCE_KIND_PROD && kind != LN_REDUCE_KIND_LOG_SUM_EXP)
        return reduce_lanes(w, kind, dequantize);
    double acc = kind == LN_REDUCE_KIND_PROD ? 1.0 : kind == LN_REDUCE_KIND_MIN ? INFINITY : 0.0;
    double largest = -INFINITY;
    if (kind == LN_REDUCE_KIND_MAX) acc = -INFINITY;
    if (kind == LN_REDUCE_KIND_LOG_SUM_EXP) {
        for (int64_t k = 0; k < w->count; k++) {
            double v = value_at(w, k, dequantize);
            largest = v > largest || !(v == v) ? v : largest;
        }
        if (!(fabs(largest) < INFINITY)) return largest; /* if the sum is empty, infinite or NaN, this is the result */
    }
    for (int64_t k = 0; k < w->count; k++) {
        double v = value_at(w, k, dequantize);
        switch (kind) {
        case LN_REDUCE_KIND_MAX: acc = v > acc || !(v == v) ? v : acc; break;
        case LN_REDUCE_KIND_MIN: acc = v < acc || !(v == v) ? v : acc; break;
        case LN_REDUCE_KIND_PROD: acc *= v; break;
        case LN_REDUCE_KIND_L1: acc += fabs(v); break;
        case LN_REDUCE_KIND_L2:
        case LN_REDUCE_KIND_SUM_SQUARE: acc += v * v; break;
        case LN_REDUCE_KIND_LOG_SUM_EXP: acc += exp(v - largest); break;
        default: acc += v; break;
        }
    }
    switch (kind) {
    case LN_REDUCE_KIND_MEAN: return acc / (double)w->count;
    case LN_REDUCE_KIND_L2: return sqrt(acc);
    case LN_REDUCE_KIND_LOG_SUM: return log(acc);
    case LN_REDUCE_KIND_LOG_SUM_EXP: return largest + log(acc);
    default: return acc;
    }
}

static int64_t reduce_ints(const walk *w, int64_t kind) {
    bool is_u64 = w->x->dtype == LINNET_U64;
    uint64_t acc = kind == LN_REDUCE_KIND_PROD ? 1 : 0;
    int64_t low, high;
    if (kind == LN_REDUCE_KIND_MAX || kind == LN_REDUCE_KIND_MIN) {
        switch (w->x->dtype) {
        case LINNET_I32: low = INT32_MIN, high = INT32_MAX; break;
        case LINNET_U32: low = 0, high = UINT32_MAX; break;
        case LINNET_I64: low = INT64_MIN, high = INT64_MAX; break;
        case LINNET_U64: low = 0, high = -1; break;
        case LINNET_BOOL: low = 0, high = 1; break;
        default: ln_quant_range(w->x->dtype, 0, &low, &high); break;
        }
        acc = (uint64_t)(kind == LN_REDUCE_KIND_MAX ? low : high);
    }
    for (int64_t k = 0; k < w->count; k++) {
        int64_t v = ln_load_wrapped(w->data, w->x->dtype, element_at(w, k));
        uint64_t u = (uint64_t)v;
        bool greater = is_u64 ? u > acc : v > (int64_t)acc, less = is_u64 ? u < acc : v < (int64_t)acc;
        switch (kind) {
        case LN_REDUCE_KIND_MAX: acc = greater ? u : acc; break;
        case LN_REDUCE_KIND_MIN: acc = less ? u : acc; break;
        case LN_REDUCE_KIND_PROD: acc *= u; break;
        case LN_REDUCE_KIND_L1: acc += v < 0 && !is_u64 ? 0 - u : u; break;
        case LN_REDUCE_KIND_L2:
        case LN_REDUCE_KIND_SUM_SQUARE: acc += u * u; break;
        default: acc += u; break;
        }
    }
    if (kind == LN_REDUCE_KIND_MEAN && w->count > 0)
        return is_u64 ? (int64_t)(acc / (uint64_t)w->count) : (int64_t)acc / w->count;
    return (int64_t)acc;
}

/* Returns the index of the extreme. NaN counts as the extreme. Of equal extremes, the first one is taken, or the last
 * if `last` is set. */
static int64_t reduce_arg(const walk *w, bool largest, bool last) {
    int64_t best = 0;
    bool is_float = ln_dtype_is_float(w->x->dtype);
    for (int64_t k = 1; k < w->count; k++) {
        int order; /* element k compared with the best so far: 1 better, 0 equal */
        if (is_float) {
            double u = value_at(w, k, false), v = value_at(w, best, false);
            bool nan_u = !(u == u), nan_v = !(v == v);
            order = nan_u || nan_v ? (int)nan_u - (int)nan_v : largest ? (u > v) - (u < v) : (u < v) - (u > v);
        } else {
            int64_t u = ln_load_wrapped(w->data, w->x->dtype, element_at(w, k));
            int64_t v = ln_load_wrapped(w->data, w->x->dtype, element_at(w, best));
            int greater = w->x->dtype == LINNET_U64 ? ((uint64_t)u > (uint64_t)v) - ((uint64_t)u < (uint64_t)v)
                                                    : (u > v) - (u < v);
            order = largest ? greater : -greater;
        }
        if (order > 0 || (order == 0 && last)) best = k;
    }
    return best;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    (void)thread;
    const ln_reduce_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    uint32_t mask;
    bool bad;
    ln_reduce_mask(a, call->inputs, call->n_inputs, &mask, &bad);
    walk w = {b->inputs[0], x, *x, 0, 1};
    ln_tensor outer = *x;
    for (int d = 0; d < x->rank; d++) {
        if (mask >> d & 1u) {
            outer.dims[d] = 1;
            w.count *= x->dims[d];
        } else {
            w.inner.dims[d] = 1;
        }
    }
    bool dequantize = x->quant && y->dtype == LINNET_F32 && !ln_dtype_is_float(x->dtype);
    bool logs = a->kind == LN_REDUCE_KIND_LOG_SUM || a->kind == LN_REDUCE_KIND_LOG_SUM_EXP;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = ln_offset_of(y, i);
        w.base = ln_offset_of(&outer, i);
        if (a->kind == LN_REDUCE_KIND_ARGMAX || a->kind == LN_REDUCE_KIND_ARGMIN)
            ln_store_wrapped(b->outputs[0], y->dtype, at,
                             reduce_arg(&w, a->kind == LN_REDUCE_KIND_ARGMAX, a->select_last_index != 0));
        else if (dequantize || ln_dtype_is_float(x->dtype))
            ln_store_float(b->outputs[0], y->dtype, at, reduce_floats(&w, a->kind, dequantize));
        else if (logs || a->kind == LN_REDUCE_KIND_L2) /* integer results are truncated, as in ONNX, not rounded */
            ln_store_float(b->outputs[0], y->dtype, at,
                           trunc(logs ? reduce_floats(&w, a->kind, false) : sqrt((double)reduce_ints(&w, a->kind))));
        else
            ln_store_wrapped(b->outputs[0], y->dtype, at, reduce_ints(&w, a->kind));
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_reduce = {.can = can, .configure = configure, .run = run};
