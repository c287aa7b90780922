/* gather.c - shape rule and kernel of `gather`, with three kinds: take along an axis, elements (GatherElements), and nd
 * (GatherND). Every index is checked at run time. Inner runs that are contiguous on both sides use memcpy. */
#include "base/layout.h"
#include "kernel/common/index.h"
#include "kernel/common/quant_unpack.h"
#include "kernel/infer.h"
#include "kernel/kernel.h"
#include "kernel/step.h"

#include <string.h>

static linnet_status bad_axis(const ln_infer *infer, int64_t axis, int rank) {
    ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "gather: the axis is out of range");
    ln_expected(infer->error, "an axis in [-%d, %d)", rank, rank);
    return ln_got(infer->error, "%lld", (long long)axis);
}

static linnet_status too_many(const ln_infer *infer, int rank) {
    ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "gather: the result has too many dimensions");
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
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "gather nd: batch_dims is out of range");
        ln_expected(infer->error, "at least 0 and less than %d, the smaller rank", (int)ln_min(x->rank, index->rank));
        return ln_got(infer->error, "%lld", (long long)a->batch_dims);
    }
    if (depth < 0) {
        y->rank = -1; /* the rank depends on an unknown dimension */
        return LINNET_OK;
    }
    if (depth < 1 || a->batch_dims + depth > x->rank) {
        ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "gather nd: the last dimension of indices is out of range");
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

static linnet_status infer_dtype(const ln_infer *infer, const ln_tensor *x, ln_tensor *y) {
    const ln_gather_attributes *a = infer->attributes;
    const bool blocks = x->quant != NULL && x->quant->scheme == LN_QUANT_BLOCK;
    y->dtype = a->dtype != LINNET_NONE ? (uint8_t)a->dtype : x->dtype;
    if (a->dtype != LINNET_NONE) {
        if (ln_dtype_is_float(y->dtype) && ln_quant_has_values(x)) return LINNET_OK;
        ln_fail(infer->error, LINNET_WRONG_DTYPE, "gather: dtype needs a quantized tensor and a float result");
        ln_expected(infer->error, "integers with quantization, and f32, f16 or bf16");
        return ln_got(infer->error, "%s, and %s", linnet_dtype_name(x->dtype), linnet_dtype_name(y->dtype));
    }
    if (ln_dtype_bits(x->dtype) >= 8 && !blocks) return LINNET_OK;
    ln_fail(infer->error, LINNET_WRONG_DTYPE, "gather: %s can only be gathered as real values",
            blocks ? "integers with quantization per block" : linnet_dtype_name(x->dtype));
    return ln_hint(infer->error, "set the attribute dtype to f32 or f16"), LINNET_WRONG_DTYPE;
}

linnet_status ln_infer_gather(const ln_infer *infer) {
    const ln_gather_attributes *a = infer->attributes;
    const ln_tensor *x = &infer->inputs[0], *index = &infer->inputs[1];
    ln_tensor *y = &infer->outputs[0];
    const linnet_status status = infer_dtype(infer, x, y);
    if (status != LINNET_OK) return status;
    if (index->dtype != LINNET_I32 && index->dtype != LINNET_I64) {
        ln_fail(infer->error, LINNET_WRONG_DTYPE, "gather: the dtype of indices is not supported");
        ln_expected(infer->error, "i32 or i64");
        return ln_got(infer->error, "%s", linnet_dtype_name(index->dtype));
    }
    if (x->rank < 0 || index->rank < 0) {
        y->rank = a->kind == LN_GATHER_KIND_ELEMENTS ? (int8_t)ln_max(x->rank, index->rank) : -1;
        for (int d = 0; d < y->rank; d++) y->dims[d] = index->rank >= 0 ? index->dims[d] : -1;
        return LINNET_OK;
    }
    const bool tuples = a->kind == LN_GATHER_KIND_ND;
    ln_index_facts(infer, tuples ? (int)a->batch_dims : ln_axis(a->axis, x->rank), tuples, !a->from_end);
    if (a->kind == LN_GATHER_KIND_TAKE) return infer_take(infer, x, index, y);
    if (a->kind == LN_GATHER_KIND_ND) return infer_nd(infer, x, index, y);
    if (ln_axis(a->axis, x->rank) < 0) return bad_axis(infer, a->axis, x->rank);
    bool fits = x->rank == index->rank;
    for (int d = 0; fits && d < x->rank; d++)
        fits = d == ln_axis(a->axis, x->rank) || x->dims[d] < 0 || index->dims[d] < 0 || index->dims[d] <= x->dims[d];
    if (!fits) {
        char text[64], other[64];
        ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "gather elements: the shape of indices does not match the tensor");
        ln_expected(infer->error, "the tensor's rank, and dimensions within %s except along the axis",
                    ln_shape_text(x->dims, x->rank, text, sizeof text));
        return ln_got(infer->error, "%s", ln_shape_text(index->dims, index->rank, other, sizeof other));
    }
    ln_same_shape(index, y);
    return LINNET_OK;
}

/* All kinds go over the points of a grid. At each point, an index (or a tuple of indices, for nd) selects a block of
 * the trailing dims of x. All blocks have the same size, which is one element for the kind `elements`. */
typedef struct walk {
    int rank; /* of the grid */
    /* The sizes of the grid, and the steps along its dimensions in y, in the indices and in x. */
    int64_t dims[LN_MAX_RANK], to[LN_MAX_RANK], at[LN_MAX_RANK], from[LN_MAX_RANK];
    int first, depth; /* the dimensions of x that the indices of a point refer to */
    int64_t next;     /* elements from one index of a tuple to the next */
    bool from_end;    /* negative indices count from the end */
    int block_rank;
    int64_t block;    /* number of elements of the block */
    bool contiguous;  /* the block is contiguous in x and in y */
    bool real;        /* the result has the real values of quantized integers */
    int64_t adjacent; /* constant indices come in runs of this length that are adjacent in x, as in frames of sound; 0:
                         not known */
} walk;

/* Returns the length of runs of constant indices that increase by 1, if all are in range and the elements that they
 * select are adjacent in x and in y. */
static LN_PLANNING int64_t run_length(const ln_call *call, const walk *w) {
    const ln_tensor *x = &call->inputs[0], *index = &call->inputs[1];
    const int last = w->rank - 1;
    if (index->data == NULL || w->depth != 1 || w->block != 1 || w->real || last < 0 || !ln_is_dense(index) ||
        w->at[last] != 1 || w->to[last] != 1 || w->from[last] != 0 || x->strides[w->first] != 1)
        return 0;
    int64_t run = w->dims[last], before = -1;
    for (int64_t i = 0, n = ln_count(index); i < n; i++) {
        const int64_t v = ln_load_i64(index->data, index->dtype, i);
        if (v < 0 || v >= x->dims[w->first]) return 0;
        /* `run` becomes the greatest common divisor of the last dimension and of the starts of all runs. */
        if (v != before + 1)
            for (int64_t rest = i; rest != 0;) {
                const int64_t other = run % rest;
                run = rest, rest = other;
            }
        before = v;
    }
    return run > 1 ? run : 0;
}

static LN_PLANNING bool can(const ln_call *call) {
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    return (x->dtype == y->dtype || (ln_is_dense(x) && ln_is_dense(y))) && x->rank >= 0 && call->inputs[1].rank >= 0;
}

static LN_PLANNING linnet_status configure(ln_call *call) {
    const ln_gather_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *index = &call->inputs[1], *y = &call->outputs[0];
    const bool nd = a->kind == LN_GATHER_KIND_ND, take = a->kind == LN_GATHER_KIND_TAKE;
    walk *w = call->state = ln_call_state(call, sizeof *w);
    if (w == NULL) return LINNET_OUT_OF_MEMORY;
    w->first = nd ? (int)a->batch_dims : ln_axis(a->axis, x->rank);
    w->depth = nd ? (int)index->dims[index->rank - 1] : 1;
    w->from_end = a->from_end;
    w->next = nd ? index->strides[index->rank - 1] : 0;
    w->block_rank = nd || take ? x->rank - w->first - w->depth : 0;
    w->rank = y->rank - w->block_rank;
    for (int d = 0; d < w->rank; d++) {
        w->dims[d] = y->dims[d];
        w->to[d] = y->strides[d];
        if (take) {
            w->at[d] = d >= w->first && d < w->first + index->rank ? index->strides[d - w->first] : 0;
            w->from[d] = d < w->first ? x->strides[d] : 0;
        } else {
            w->at[d] = index->strides[d];
            w->from[d] = (nd ? d < w->first : d != w->first) ? x->strides[d] : 0;
        }
    }
    w->block = 1;
    for (int d = x->rank - w->block_rank; d < x->rank; d++) w->block *= x->dims[d];
    w->contiguous = ln_dense_tail(x, x->rank - w->block_rank) && ln_dense_tail(y, y->rank - w->block_rank);
    w->real = x->dtype != y->dtype;
    w->adjacent = run_length(call, w);
    if (w->real && y->dtype != LINNET_F32) call->scratch_thread = (size_t)w->block * sizeof(float);
    call->work[0] = w->block > 0 ? ln_count(y) / w->block : 0;
    call->grain =
        ln_max(1, 65536 / (w->block + 8)); /* about 20 us of work; to share work among threads takes as long */
    return LINNET_OK;
}

/* Copies a block that is not contiguous. */
static void move_pieces(const ln_call *call, const ln_buffers *b, int64_t y_at, int64_t x_at) {
    const walk *w = call->state;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    for (int64_t i = 0; i < w->block; i++) {
        int64_t rest = i, from = x_at, to = y_at;
        for (int k = 1; k <= w->block_rank; k++) {
            int64_t c = rest % x->dims[x->rank - k];
            rest /= x->dims[x->rank - k];
            from += c * x->strides[x->rank - k];
            to += c * y->strides[y->rank - k];
        }
        ln_copy_element(b->outputs[0], to, b->inputs[0], from, ln_dtype_size(x->dtype));
    }
}

/* Stores the real values of the block that begins at element x_at. */
static void move_values(const ln_call *call, const ln_buffers *b, int64_t y_at, int64_t x_at, float *line) {
    const walk *w = call->state;
    const int dtype = call->outputs[0].dtype;
    if (dtype == LINNET_F32) line = (float *)b->outputs[0] + y_at;
    ln_quant_unpack(&call->inputs[0], b->inputs[0], x_at, w->block, line);
    for (int64_t i = 0; dtype != LINNET_F32 && i < w->block; i++)
        ln_store_f64(b->outputs[0], dtype, y_at + i, (double)line[i]);
}

/* Finds the offset in x for the point whose indices are at `at`. Returns false if an index is out of range; wrong[0] is
 * then the index, and wrong[1] the size of its dimension. */
static inline bool resolve(const walk *w, const ln_tensor *x, const void *indices, bool wide, int64_t at, int64_t *from,
                           int64_t wrong[2]) {
    for (int k = 0; k < w->depth; k++, at += w->next) {
        int64_t i = wide ? ((const int64_t *)indices)[at] : ((const int32_t *)indices)[at], n = x->dims[w->first + k];
        if (i < (w->from_end ? -n : 0) || i >= n) {
            wrong[0] = i, wrong[1] = n;
            return false;
        }
        *from += (i < 0 ? i + n : i) * x->strides[w->first + k];
    }
    return true;
}

/* The common case has a loop of its own: single elements of four bytes, each with one index, along one dimension of the
 * grid. Stops before an index that is out of range, and returns how many elements it has copied. */
static int64_t take_words(const walk *w, const ln_tensor *x, const ln_buffers *b, bool wide, int64_t side, int64_t to,
                          int64_t at, int64_t from) {
    const int last = w->rank - 1;
    const int64_t n = x->dims[w->first], step = x->strides[w->first], to_step = w->to[last], at_step = w->at[last],
                  from_step = w->from[last];
    const uint32_t *source = (const uint32_t *)b->inputs[0] + from;
    uint32_t *target = (uint32_t *)b->outputs[0] + to;
    const int64_t *indices = b->inputs[1];
    const int32_t *short_indices = b->inputs[1];
    for (int64_t k = 0; k < side; k++, at += at_step) {
        int64_t i = wide ? indices[at] : short_indices[at];
        if (i < 0 && w->from_end) i += n;
        if (i < 0 || i >= n) return k;
        target[k * to_step] = source[k * from_step + i * step];
    }
    return side;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    float *line = (float *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    const walk *w = call->state;
    const ln_tensor *x = &call->inputs[0];
    const bool wide = call->inputs[1].dtype == LINNET_I64;
    const int last = w->rank - 1;
    const size_t size = ln_dtype_size(x->dtype), bytes = (size_t)w->block * size;
    int64_t wrong[2];
    for (int64_t row = begin; row < end;) {
        int64_t rest = row, from = 0, to = 0, at = 0, side = 1;
        for (int d = last; d >= 0; d--) {
            int64_t c = rest % w->dims[d];
            rest /= w->dims[d];
            to += c * w->to[d], at += c * w->at[d], from += c * w->from[d];
            if (d == last) side = ln_min(w->dims[d] - c, end - row); /* adjacent points */
        }
        row += side;
        int64_t i = 0;
        while (w->adjacent != 0 && i < side) {
            const int64_t n = ln_min(w->adjacent - at % w->adjacent, side - i);
            const int64_t first = from + ln_load_i64(b->inputs[1], call->inputs[1].dtype, at);
            memcpy((char *)b->outputs[0] + to * (int64_t)size, (const char *)b->inputs[0] + first * (int64_t)size,
                   (size_t)n * size);
            i += n, to += n, at += n;
        }
        if (i < side && size == 4 && !w->real && w->block == 1 && w->contiguous && w->depth == 1 && last >= 0) {
            i = take_words(w, x, b, wide, side, to, at, from);
            to += i * w->to[last], at += i * w->at[last], from += i * w->from[last];
        }
        for (; i < side; i++) {
            int64_t source = from;
            if (!resolve(w, x, b->inputs[1], wide, at, &source, wrong))
                return ln_index_error(b, "gather index", wrong[0], w->from_end ? -wrong[1] : 0, wrong[1] - 1);
            char *target = (char *)b->outputs[0] + to * (int64_t)size;
            const char *origin = (const char *)b->inputs[0] + source * (int64_t)size;
            if (w->real)
                move_values(call, b, to, source, line);
            else if (!w->contiguous)
                move_pieces(call, b, to, source);
            else if (bytes == 1)
                *target = *origin;
            else
                memcpy(target, origin, bytes);
            if (last >= 0) to += w->to[last], at += w->at[last], from += w->from[last];
        }
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_gather = {.can = can, .configure = configure, .run = run};
