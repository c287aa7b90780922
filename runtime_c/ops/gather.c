/* gather.c - shape rule and kernel of `gather`: take along an axis, elements (GatherElements), nd (GatherND).
 * Every index is checked while running. Inner runs that are contiguous on both sides move with memcpy. */
#include "core/kernel.h"
#include "ops/index.h"

#include <string.h>

static linnet_status bad_axis(const ln_infer *infer, int64_t axis, int rank) {
    ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "gather along an axis that the tensor does not have");
    ln_expected(infer->error, "an axis in [-%d, %d)", rank, rank);
    return ln_got(infer->error, "%lld", (long long)axis);
}

static linnet_status too_many(const ln_infer *infer, int rank) {
    ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "gather's result has too many dimensions");
    ln_expected(infer->error, "at most %d", LN_MAX_RANK);
    return ln_got(infer->error, "%d", rank);
}

static linnet_status infer_take(const ln_infer *infer, const ln_tensor *x, const ln_tensor *index, ln_tensor *y) {
    const ln_gather_attributes *a = infer->attributes;
    int axis = ln_axis(a->axis, x->rank);
    if (axis < 0) return bad_axis(infer, a->axis, x->rank);
    int rank = x->rank - 1 + index->rank;
    if (rank > LN_MAX_RANK) return too_many(infer, rank);
    y->rank = (int8_t)rank;
    memcpy(y->dims, x->dims, (size_t)axis * sizeof(int64_t));
    memcpy(y->dims + axis, index->dims, (size_t)index->rank * sizeof(int64_t));
    memcpy(y->dims + axis + index->rank, x->dims + axis + 1, (size_t)(x->rank - axis - 1) * sizeof(int64_t));
    return LINNET_OK;
}

static linnet_status infer_nd(const ln_infer *infer, const ln_tensor *x, const ln_tensor *index, ln_tensor *y) {
    const ln_gather_attributes *a = infer->attributes;
    int64_t depth = index->rank > 0 ? index->dims[index->rank - 1] : 0;
    if (a->batch_dims < 0 || a->batch_dims >= index->rank || a->batch_dims >= x->rank) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "gather nd: batch_dims does not fit the operands");
        ln_expected(infer->error, "fewer than %d, the lesser rank", (int)ln_min(x->rank, index->rank));
        return ln_got(infer->error, "%lld", (long long)a->batch_dims);
    }
    if (depth < 0) {
        y->rank = -1; /* the rank depends on an unknown dimension */
        return LINNET_OK;
    }
    if (depth < 1 || a->batch_dims + depth > x->rank) {
        ln_fail(infer->error, LINNET_SHAPE_MISMATCH,
                "gather nd: the last dimension of indices does not fit the tensor");
        ln_expected(infer->error, "from 1 to %lld", (long long)(x->rank - a->batch_dims));
        return ln_got(infer->error, "%lld", (long long)depth);
    }
    for (int d = 0; d < a->batch_dims; d++)
        if (x->dims[d] >= 0 && index->dims[d] >= 0 && x->dims[d] != index->dims[d]) {
            ln_fail(infer->error, LINNET_SHAPE_MISMATCH,
                    "gather nd: the batch dimensions of indices and tensor differ");
            ln_expected(infer->error, "%lld at dimension %d of indices", (long long)x->dims[d], d);
            return ln_got(infer->error, "%lld", (long long)index->dims[d]);
        }
    int first = (int)(a->batch_dims + depth);
    int rank = index->rank - 1 + x->rank - first;
    if (rank > LN_MAX_RANK) return too_many(infer, rank);
    y->rank = (int8_t)rank;
    memcpy(y->dims, index->dims, (size_t)(index->rank - 1) * sizeof(int64_t));
    memcpy(y->dims + index->rank - 1, x->dims + first, (size_t)(x->rank - first) * sizeof(int64_t));
    return LINNET_OK;
}

linnet_status ln_infer_gather(const ln_infer *infer) {
    const ln_gather_attributes *a = infer->attributes;
    const ln_tensor *x = &infer->inputs[0], *index = &infer->inputs[1];
    ln_tensor *y = &infer->outputs[0];
    y->dtype = x->dtype;
    if (index->dtype != LINNET_I32 && index->dtype != LINNET_I64) {
        ln_fail(infer->error, LINNET_WRONG_DTYPE, "gather's indices have a type it does not take");
        ln_expected(infer->error, "i32 or i64");
        return ln_got(infer->error, "%s", linnet_dtype_name(index->dtype));
    }
    if (x->rank < 0 || index->rank < 0) {
        y->rank = a->kind == LN_GATHER_KIND_ELEMENTS ? (int8_t)ln_max(x->rank, index->rank) : -1;
        for (int d = 0; d < y->rank; d++) y->dims[d] = index->rank >= 0 ? index->dims[d] : -1;
        return LINNET_OK;
    }
    if (a->kind == LN_GATHER_KIND_TAKE) return infer_take(infer, x, index, y);
    if (a->kind == LN_GATHER_KIND_ND) return infer_nd(infer, x, index, y);
    if (ln_axis(a->axis, x->rank) < 0) return bad_axis(infer, a->axis, x->rank);
    bool fits = x->rank == index->rank;
    for (int d = 0; fits && d < x->rank; d++)
        fits = d == ln_axis(a->axis, x->rank) || x->dims[d] < 0 || index->dims[d] < 0 || index->dims[d] <= x->dims[d];
    if (!fits) {
        char text[64], other[64];
        ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "gather elements: indices and tensor do not fit together");
        ln_expected(infer->error, "indices of the tensor's rank, within %s except along the axis",
                    ln_shape_text(x->dims, x->rank, text, sizeof text));
        return ln_got(infer->error, "%s", ln_shape_text(index->dims, index->rank, other, sizeof other));
    }
    ln_same_shape(index, y);
    return LINNET_OK;
}

/* Rows for `take` and `nd`: what one index (tuple) selects is a block of the trailing dims of x, equal on both sides.
 */
typedef struct state {
    int block_rank;  /* trailing dims that form the block */
    int64_t block;   /* elements of it */
    bool contiguous; /* the block lies in one piece in x and in y */
} state;

static bool supports(const ln_call *call) {
    return call->epilogue == NULL && call->inputs[0].dtype == call->outputs[0].dtype && call->inputs[0].rank >= 0 &&
           call->inputs[1].rank >= 0;
}

static bool dense_tail(const ln_tensor *t, int from) {
    int64_t stride = 1;
    for (int d = t->rank - 1; d >= from; d--) {
        if (t->dims[d] != 1 && t->strides[d] != stride) return false;
        stride *= t->dims[d];
    }
    return true;
}

static linnet_status configure(ln_call *call) {
    const ln_gather_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *index = &call->inputs[1], *y = &call->outputs[0];
    state *s = ln_call_state(call, sizeof *s);
    if (!s) return LINNET_OUT_OF_MEMORY;
    call->state = s;
    s->block = 1;
    if (a->kind == LN_GATHER_KIND_TAKE)
        s->block_rank = x->rank - 1 - ln_axis(a->axis, x->rank);
    else if (a->kind == LN_GATHER_KIND_ND)
        s->block_rank = x->rank - (int)(a->batch_dims + index->dims[index->rank - 1]);
    for (int d = x->rank - s->block_rank; d < x->rank; d++) s->block *= x->dims[d];
    s->contiguous = dense_tail(x, x->rank - s->block_rank) && dense_tail(y, y->rank - s->block_rank);
    int64_t count = ln_count(y);
    call->work[0] = s->block > 0 ? count / s->block : 0;
    call->grain = ln_max(1, 8192 / ln_max(1, s->block));
    return LINNET_OK;
}

/* Wraps a negative index; false when it is outside [-n, n). */
static bool wrap(int64_t *index, int64_t n) {
    if (*index < -n || *index >= n) return false;
    if (*index < 0) *index += n;
    return true;
}

static void move_block(const ln_call *call, const ln_buffers *b, int64_t y_at, int64_t x_at) {
    const state *s = call->state;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    size_t size = ln_dtype_size(x->dtype);
    if (s->contiguous) {
        memcpy((char *)b->outputs[0] + y_at * (int64_t)size, (const char *)b->inputs[0] + x_at * (int64_t)size,
               (size_t)s->block * size);
        return;
    }
    for (int64_t i = 0; i < s->block; i++) {
        int64_t rest = i, from = x_at, to = y_at;
        for (int k = 1; k <= s->block_rank; k++) {
            int64_t c = rest % x->dims[x->rank - k];
            rest /= x->dims[x->rank - k];
            from += c * x->strides[x->rank - k];
            to += c * y->strides[y->rank - k];
        }
        ln_copy_element(b->outputs[0], to, b->inputs[0], from, size);
    }
}

static linnet_status run_take(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end) {
    const ln_gather_attributes *a = call->attributes;
    const state *s = call->state;
    const ln_tensor *x = &call->inputs[0], *index = &call->inputs[1], *y = &call->outputs[0];
    int axis = ln_axis(a->axis, x->rank);
    for (int64_t row = begin; row < end; row++) {
        int64_t rest = row, from = 0, to = 0, at = 0;
        for (int d = y->rank - s->block_rank - 1; d >= 0; d--) {
            int64_t c = rest % y->dims[d];
            rest /= y->dims[d];
            to += c * y->strides[d];
            if (d >= axis)
                at += c * index->strides[d - axis];
            else
                from += c * x->strides[d];
        }
        int64_t i = ln_load_i64(b->inputs[1], index->dtype, at), n = x->dims[axis];
        if (!wrap(&i, n)) return ln_index_error(b, "gather index", i, -n, n - 1);
        move_block(call, b, to, from + i * x->strides[axis]);
    }
    return LINNET_OK;
}

static linnet_status run_nd(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end) {
    const ln_gather_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *index = &call->inputs[1], *y = &call->outputs[0];
    int last = index->rank - 1, batch = (int)a->batch_dims;
    for (int64_t row = begin; row < end; row++) {
        int64_t rest = row, from = 0, to = 0, at = 0;
        for (int d = last - 1; d >= 0; d--) {
            int64_t c = rest % index->dims[d];
            rest /= index->dims[d];
            to += c * y->strides[d];
            at += c * index->strides[d];
            from += d < batch ? c * x->strides[d] : 0;
        }
        for (int64_t k = 0; k < index->dims[last]; k++) {
            int64_t i = ln_load_i64(b->inputs[1], index->dtype, at + k * index->strides[last]);
            int64_t n = x->dims[batch + k];
            if (!wrap(&i, n)) return ln_index_error(b, "gather index", i, -n, n - 1);
            from += i * x->strides[batch + k];
        }
        move_block(call, b, to, from);
    }
    return LINNET_OK;
}

static linnet_status run_elements(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end) {
    const ln_gather_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *index = &call->inputs[1], *y = &call->outputs[0];
    int axis = ln_axis(a->axis, x->rank);
    size_t size = ln_dtype_size(x->dtype);
    for (int64_t row = begin; row < end; row++) {
        int64_t rest = row, from = 0, to = 0, at = 0;
        for (int d = y->rank - 1; d >= 0; d--) {
            int64_t c = rest % y->dims[d];
            rest /= y->dims[d];
            to += c * y->strides[d];
            at += c * index->strides[d];
            from += d == axis ? 0 : c * x->strides[d];
        }
        int64_t i = ln_load_i64(b->inputs[1], index->dtype, at), n = x->dims[axis];
        if (!wrap(&i, n)) return ln_index_error(b, "gather index", i, -n, n - 1);
        ln_copy_element(b->outputs[0], to, b->inputs[0], from + i * x->strides[axis], size);
    }
    return LINNET_OK;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    (void)thread;
    switch (((const ln_gather_attributes *)call->attributes)->kind) {
    case LN_GATHER_KIND_TAKE: return run_take(call, b, begin, end);
    case LN_GATHER_KIND_ND: return run_nd(call, b, begin, end);
    default: return run_elements(call, b, begin, end);
    }
}

const ln_kernel ln_reference_gather = {
    .name = "gather_reference",
    .op = LN_OP_GATHER,
    .isa = LN_ISA_SCALAR,
    .flags = LN_KERNEL_REFERENCE | LN_KERNEL_VIEWS,
    .supports = supports,
    .configure = configure,
    .run = run,
};
