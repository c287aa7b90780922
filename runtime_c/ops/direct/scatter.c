/* scatter.c - shape rule and kernel of `scatter`: x with updates written at indices (ScatterElements, ScatterND).
 * Updates are applied in row-major order on one thread, so that duplicate indices have one defined result. */
#include "base/layout.h"
#include "kernel/common/convert.h"
#include "kernel/common/index.h"
#include "kernel/cost.h"
#include "kernel/infer.h"
#include "kernel/kernel.h"
#include "kernel/step.h"

#include <string.h>

linnet_status ln_infer_scatter(const ln_infer *infer) {
    const ln_scatter_attributes *a = infer->attributes;
    const ln_tensor *x = &infer->inputs[0], *index = &infer->inputs[1], *u = &infer->inputs[2];
    ln_tensor *y = &infer->outputs[0];
    ln_same_shape(x, y);
    y->dtype = x->dtype;
    if (index->dtype != LINNET_I32 && index->dtype != LINNET_I64) {
        ln_fail(infer->error, LINNET_WRONG_DTYPE, "scatter: the dtype of indices is not supported");
        ln_expected(infer->error, "i32 or i64");
        return ln_got(infer->error, "%s", linnet_dtype_name(index->dtype));
    }
    if (u->dtype != x->dtype) {
        ln_fail(infer->error, LINNET_WRONG_DTYPE, "scatter: the dtypes of updates and the tensor differ");
        ln_expected(infer->error, "%s", linnet_dtype_name(x->dtype));
        return ln_got(infer->error, "%s", linnet_dtype_name(u->dtype));
    }
    if (x->rank < 0 || index->rank < 0 || u->rank < 0) return LINNET_OK;
    const bool tuples = a->kind == LN_SCATTER_KIND_ND;
    ln_index_facts(infer, tuples ? 0 : ln_axis(a->axis, x->rank), tuples, false);
    bool fits;
    if (a->kind == LN_SCATTER_KIND_ELEMENTS) {
        if (ln_axis(a->axis, x->rank) < 0) {
            ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "scatter: the axis is out of range");
            ln_expected(infer->error, "an axis in [-%d, %d)", x->rank, x->rank);
            return ln_got(infer->error, "%lld", (long long)a->axis);
        }
        fits = index->rank == x->rank && u->rank == x->rank;
        for (int d = 0; fits && d < x->rank; d++) {
            fits = index->dims[d] < 0 || u->dims[d] < 0 || index->dims[d] == u->dims[d];
            fits = fits && (d == ln_axis(a->axis, x->rank) || index->dims[d] < 0 || x->dims[d] < 0 ||
                            index->dims[d] <= x->dims[d]);
        }
    } else {
        int64_t depth = index->rank > 0 ? index->dims[index->rank - 1] : 0;
        if (depth < 0) return LINNET_OK;
        fits = depth >= 1 && depth <= x->rank && u->rank == index->rank - 1 + x->rank - depth;
        for (int d = 0; fits && d < u->rank; d++) {
            int64_t wanted = d < index->rank - 1 ? index->dims[d] : x->dims[depth + d - (index->rank - 1)];
            fits = wanted < 0 || u->dims[d] < 0 || wanted == u->dims[d];
        }
    }
    if (fits) return LINNET_OK;
    char t1[40], t2[40], t3[40];
    ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "scatter: the shapes of tensor, indices and updates do not match");
    ln_expected(infer->error,
                a->kind == LN_SCATTER_KIND_ELEMENTS
                    ? "updates and indices of the same shape, no larger than the tensor except along the axis"
                    : "updates of shape indices.shape[:-1] + x.shape[indices.shape[-1]:]");
    return ln_got(infer->error, "%s, %s, %s", ln_shape_text(x->dims, x->rank, t1, sizeof t1),
                  ln_shape_text(index->dims, index->rank, t2, sizeof t2),
                  ln_shape_text(u->dims, u->rank, t3, sizeof t3));
}

/* If y and x share memory, only the selected elements are written, and only a reduction reads them. */
void ln_count_scatter(const ln_call *call, ln_counts *counts) {
    const ln_scatter_attributes *a = call->attributes;
    const ln_tensor *index = &call->inputs[1], *u = &call->inputs[2];
    const double selected = (double)ln_known_bytes(u);
    const bool tuples = a->kind == LN_SCATTER_KIND_ND;
    counts->work[LN_RATE_MOVE] += (double)ln_count(tuples ? index : u);
    if (tuples && a->reduction != LN_SCATTER_REDUCTION_NONE) counts->work[LN_RATE_MAP] += (double)ln_count(u);
    if (!call->in_place) return;
    counts->written = selected;
    counts->read = (double)ln_known_bytes(index) + selected;
    if (a->reduction != LN_SCATTER_REDUCTION_NONE) counts->read += selected;
}

static LN_PLANNING bool can(const ln_call *call) {
    return call->inputs[0].dtype == call->outputs[0].dtype && call->inputs[2].dtype == call->outputs[0].dtype;
}

/* Computes one operation on floats in double; the result is rounded when it is stored. For f32, f16 and bf16 this gives
 * the same bits as computing in f32. */
static double combine_float(int64_t reduction, double old, double update) {
    switch (reduction) {
    case LN_SCATTER_REDUCTION_ADD: return old + update;
    case LN_SCATTER_REDUCTION_MUL: return old * update;
    case LN_SCATTER_REDUCTION_MAX: return old > update || !(old == old) ? old : update;
    default: return old < update || !(old == old) ? old : update;
    }
}

static int64_t combine_int(int64_t reduction, bool is_u64, int64_t old, int64_t update) {
    switch (reduction) {
    case LN_SCATTER_REDUCTION_ADD: return (int64_t)((uint64_t)old + (uint64_t)update);
    case LN_SCATTER_REDUCTION_MUL: return (int64_t)((uint64_t)old * (uint64_t)update);
    default: break;
    }
    bool greater = is_u64 ? (uint64_t)old > (uint64_t)update : old > update;
    return greater == (reduction == LN_SCATTER_REDUCTION_MAX) ? old : update;
}

static void write_one(const ln_call *call, const ln_buffers *b, int64_t to, int64_t from) {
    int64_t reduction = ((const ln_scatter_attributes *)call->attributes)->reduction;
    int dtype = call->outputs[0].dtype;
    void *y = b->outputs[0];
    if (reduction == LN_SCATTER_REDUCTION_NONE)
        ln_copy_element(y, to, b->inputs[2], from, ln_dtype_size(dtype));
    else if (ln_dtype_is_float(dtype))
        ln_store_float(y, dtype, to,
                       combine_float(reduction, ln_load_f64(y, dtype, to), ln_load_f64(b->inputs[2], dtype, from)));
    else
        ln_store_wrapped(y, dtype, to,
                         combine_int(reduction, dtype == LINNET_U64, ln_load_wrapped(y, dtype, to),
                                     ln_load_wrapped(b->inputs[2], dtype, from)));
}

static linnet_status scatter_elements(const ln_call *call, const ln_buffers *b) {
    const ln_scatter_attributes *a = call->attributes;
    const ln_tensor *index = &call->inputs[1], *u = &call->inputs[2], *y = &call->outputs[0];
    int axis = ln_axis(a->axis, y->rank);
    int64_t count = ln_count(index), n = y->dims[axis];
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, at = 0, from = 0, to = 0;
        for (int d = index->rank - 1; d >= 0; d--) {
            int64_t c = rest % index->dims[d];
            rest /= index->dims[d];
            at += c * index->strides[d];
            from += c * u->strides[d];
            to += d == axis ? 0 : c * y->strides[d];
        }
        int64_t k = ln_load_i64(b->inputs[1], index->dtype, at);
        if (k < -n || k >= n) return ln_index_error(b, "scatter index", k, -n, n - 1);
        write_one(call, b, to + (k < 0 ? k + n : k) * y->strides[axis], from);
    }
    return LINNET_OK;
}

/* Writes a block of the trailing dims, which a tuple of indices selects. `whole` says that the block is contiguous,
 * like a row of a table. */
static void write_block(const ln_call *call, const ln_buffers *b, int64_t to, int64_t from, int first, int64_t block,
                        bool whole) {
    const ln_tensor *u = &call->inputs[2], *y = &call->outputs[0];
    const int64_t reduction = ((const ln_scatter_attributes *)call->attributes)->reduction;
    const size_t size = ln_dtype_size(y->dtype);
    if (whole && reduction == LN_SCATTER_REDUCTION_NONE) {
        memcpy((char *)b->outputs[0] + to * (int64_t)size, (const char *)b->inputs[2] + from * (int64_t)size,
               (size_t)block * size);
        return;
    }
    if (whole && reduction == LN_SCATTER_REDUCTION_ADD && y->dtype == LINNET_F32) {
        float *row = (float *)b->outputs[0] + to;
        const float *more = (const float *)b->inputs[2] + from;
        for (int64_t j = 0; j < block; j++) row[j] += more[j];
        return;
    }
    for (int64_t j = 0; j < block; j++) {
        int64_t rest = j, source = from, target = to;
        for (int k = 1; k <= u->rank - first; k++) {
            int64_t c = rest % u->dims[u->rank - k];
            rest /= u->dims[u->rank - k];
            source += c * u->strides[u->rank - k];
            target += c * y->strides[y->rank - k];
        }
        write_one(call, b, target, source);
    }
}

static linnet_status scatter_nd(const ln_call *call, const ln_buffers *b) {
    const ln_tensor *index = &call->inputs[1], *u = &call->inputs[2], *y = &call->outputs[0];
    const int last = index->rank - 1, depth = (int)index->dims[last];
    const bool whole = ln_dense_tail(u, last) && ln_dense_tail(y, depth);
    int64_t block = 1, count = 1;
    for (int d = 0; d < u->rank; d++) *(d < last ? &count : &block) *= u->dims[d];
    for (int64_t i = 0; i < count && block > 0; i++) {
        int64_t rest = i, at = 0, from = 0, to = 0;
        for (int d = last - 1; d >= 0; d--) {
            int64_t c = rest % index->dims[d];
            rest /= index->dims[d];
            at += c * index->strides[d];
            from += c * u->strides[d];
        }
        for (int d = 0; d < depth; d++) {
            int64_t k = ln_load_i64(b->inputs[1], index->dtype, at + d * index->strides[last]), n = y->dims[d];
            if (k < -n || k >= n) return ln_index_error(b, "scatter index", k, -n, n - 1);
            to += (k < 0 ? k + n : k) * y->strides[d];
        }
        write_block(call, b, to, from, last, block, whole);
    }
    return LINNET_OK;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    (void)begin;
    (void)end;
    (void)thread;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    if (b->inputs[0] != b->outputs[0]) {
        int64_t count = ln_count(y);
        size_t size = ln_dtype_size(y->dtype);
        if (ln_is_dense(x) && ln_is_dense(y)) {
            memcpy(b->outputs[0], b->inputs[0], (size_t)count * size);
        } else {
            for (int64_t i = 0; i < count; i++)
                ln_copy_element(b->outputs[0], ln_offset_of(y, i), b->inputs[0], ln_offset_of(x, i), size);
        }
    }
    if (((const ln_scatter_attributes *)call->attributes)->kind == LN_SCATTER_KIND_ELEMENTS)
        return scatter_elements(call, b);
    return scatter_nd(call, b);
}

const ln_kernel_code ln_reference_scatter = {.can = can, .run = run};
