/* top_k.c - shape rule and kernel of `top_k`: a heap of k candidates per row, which is then sorted.
 * Candidates are ordered by value, with NaN as the largest; equal values are ordered by ascending index. Rows are
 * independent work items. */
#include "kernel/cost.h"
#include "kernel/common/convert.h"
#include "kernel/common/index.h"

linnet_status ln_infer_top_k(const ln_infer *infer) {
    const ln_top_k_attributes *a = infer->attributes;
    const ln_tensor *x = &infer->inputs[0], *k = &infer->inputs[1];
    for (int i = 0; i < infer->n_outputs; i++) ln_same_shape(x, &infer->outputs[i]);
    infer->outputs[0].dtype = x->dtype;
    if (infer->n_outputs > 1) infer->outputs[1].dtype = LINNET_I64;
    if (x->rank < 0) return LINNET_OK;
    int axis = ln_axis(a->axis, x->rank);
    if (axis < 0) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "top_k: the axis is out of range");
        ln_expected(infer->error, "an axis in [-%d, %d)", x->rank, x->rank);
        return ln_got(infer->error, "%lld", (long long)a->axis);
    }
    int64_t n = -1;
    if (ln_count(k) >= 0 && ln_count(k) != 1) {
        ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "top_k: k must be one number");
        ln_expected(infer->error, "1 element");
        return ln_got(infer->error, "%lld", (long long)ln_count(k));
    }
    if (k->data) {
        n = ln_known_int(k, 0);
        if (n < 0 || (x->dims[axis] >= 0 && n > x->dims[axis])) {
            ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "top_k: k is negative or larger than the axis");
            ln_expected(infer->error, "k from 0 to %lld", (long long)x->dims[axis]);
            return ln_got(infer->error, "%lld", (long long)n);
        }
    }
    for (int i = 0; i < infer->n_outputs; i++) infer->outputs[i].dims[axis] = n;
    return LINNET_OK;
}

void ln_count_top_k(const ln_call *call, ln_counts *counts) {
    counts->work[LN_RATE_MOVE] += 4 * (double)ln_count(&call->inputs[0]);
}

typedef struct row {
    const void *data;
    int dtype;
    int64_t offset, stride;
    bool largest;
} row;

/* Tells whether element i comes before element j in the result. */
static bool before(const row *r, int64_t i, int64_t j) {
    int order; /* comparison of the values: -1, 0, 1 */
    int64_t at_i = r->offset + i * r->stride, at_j = r->offset + j * r->stride;
    if (ln_dtype_is_float(r->dtype)) {
        double u = ln_load_f64(r->data, r->dtype, at_i), v = ln_load_f64(r->data, r->dtype, at_j);
        bool nan_u = !(u == u), nan_v = !(v == v);
        order = nan_u || nan_v ? (int)nan_u - (int)nan_v : (u > v) - (u < v);
    } else if (r->dtype == LINNET_U64) {
        uint64_t u = ((const uint64_t *)r->data)[at_i], v = ((const uint64_t *)r->data)[at_j];
        order = (u > v) - (u < v);
    } else {
        int64_t u = ln_load_i64(r->data, r->dtype, at_i), v = ln_load_i64(r->data, r->dtype, at_j);
        order = (u > v) - (u < v);
    }
    if (order != 0) return r->largest ? order > 0 : order < 0;
    return i < j;
}

/* A heap whose root is the last candidate in the order. The root is dropped when a better candidate arrives. */
static void sift_down(const row *r, int64_t *heap, int64_t n, int64_t at) {
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= n) return;
        if (child + 1 < n && before(r, heap[child], heap[child + 1])) child++;
        if (!before(r, heap[at], heap[child])) return;
        int64_t t = heap[at];
        heap[at] = heap[child];
        heap[child] = t;
        at = child;
    }
}

static LN_PLANNING bool can(const ln_call *call) { return call->inputs[0].dtype == call->outputs[0].dtype; }

static LN_PLANNING linnet_status configure(ln_call *call) {
    const ln_top_k_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0];
    int axis = ln_axis(a->axis, x->rank);
    call->work[0] = x->dims[axis] > 0 ? ln_count(x) / x->dims[axis] : 0;
    call->scratch_thread = (size_t)call->outputs[0].dims[axis] * sizeof(int64_t);
    return LINNET_OK;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    const ln_top_k_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *values = &call->outputs[0];
    int axis = ln_axis(a->axis, x->rank);
    int64_t n = x->dims[axis], k = values->dims[axis];
    int64_t *heap = k > 0 ? (int64_t *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride) : NULL;
    ln_tensor rows_x = *x, rows_values = *values, rows_indices = *values;
    if (call->n_outputs > 1) rows_indices = call->outputs[1];
    int64_t index_stride = call->n_outputs > 1 ? call->outputs[1].strides[axis] : 0;
    rows_x.dims[axis] = rows_values.dims[axis] = rows_indices.dims[axis] = 1;
    size_t size = ln_dtype_size(x->dtype);
    for (int64_t i = begin; i < end && k > 0; i++) {
        row r = {b->inputs[0], x->dtype, ln_offset_of(&rows_x, i), x->strides[axis], a->largest != 0};
        for (int64_t j = 0; j < k; j++) heap[j] = j;
        for (int64_t j = k / 2 - 1; j >= 0; j--) sift_down(&r, heap, k, j);
        for (int64_t j = k; j < n; j++) {
            if (before(&r, j, heap[0])) {
                heap[0] = j;
                sift_down(&r, heap, k, 0);
            }
        }
        for (int64_t m = k - 1; m > 0; m--) { /* heap sort: the last candidate goes to the end */
            int64_t t = heap[0];
            heap[0] = heap[m];
            heap[m] = t;
            sift_down(&r, heap, m, 0);
        }
        int64_t at = ln_offset_of(&rows_values, i);
        int64_t index_at = call->n_outputs > 1 ? ln_offset_of(&rows_indices, i) : 0;
        for (int64_t j = 0; j < k; j++) {
            if (b->outputs[0])
                ln_copy_element(b->outputs[0], at + j * values->strides[axis], r.data, r.offset + heap[j] * r.stride,
                                size);
            if (call->n_outputs > 1 && b->outputs[1]) ((int64_t *)b->outputs[1])[index_at + j * index_stride] = heap[j];
        }
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_top_k = {.can = can, .configure = configure, .run = run};
