/* attention.c - shape rule and scalar reference of scaled dot-product attention, with masks, lengths and a cache.
 * The reference sums in f64 and keeps the scores of one query at a time; fast kernels are in fast/tail/attention*. */
#include "ops/attention.h"
#include "kernel/cost.h"
#include "kernel/infer.h"
#include "kernel/step.h"

#include <math.h>
#include <string.h>

/* ---- the shape rule ---- */

static const char *const operand_names[] = {"query", "key", "value", "mask", "lengths", "past_key", "past_value"};

static const ln_tensor *given(const ln_infer *infer, int i) {
    return i < infer->n_inputs && infer->inputs[i].dtype != LINNET_NONE ? &infer->inputs[i] : NULL;
}

static linnet_status wrong_dtype(const ln_infer *infer, int i, const char *expected, const char *more) {
    ln_fail(infer->error, LINNET_WRONG_DTYPE, "%s has the wrong dtype", operand_names[i]);
    ln_expected(infer->error, "%s%s", expected, more);
    ln_got(infer->error, "%s", linnet_dtype_name(infer->inputs[i].dtype));
    return LINNET_WRONG_DTYPE;
}

static linnet_status check_dtypes(const ln_infer *infer) {
    const int dtype = infer->inputs[0].dtype;
    if (!ln_dtype_is_float(dtype)) return wrong_dtype(infer, 0, "f32, f64, f16 or bf16", "");
    for (int i = 1; i < infer->n_inputs; ++i) {
        const ln_tensor *t = given(infer, i);
        if (t == NULL) continue;
        if (i == LN_ATTENTION_LENGTHS && t->dtype != LINNET_I32 && t->dtype != LINNET_I64)
            return wrong_dtype(infer, i, "i32", " or i64");
        if (i == LN_ATTENTION_MASK && t->dtype != dtype && t->dtype != LINNET_BOOL)
            return wrong_dtype(infer, i, linnet_dtype_name(dtype), " or bool");
        if (i != LN_ATTENTION_LENGTHS && i != LN_ATTENTION_MASK && t->dtype != dtype)
            return wrong_dtype(infer, i, linnet_dtype_name(dtype), ", the dtype of query");
    }
    return LINNET_OK;
}

static linnet_status check_attributes(const ln_infer *infer) {
    const ln_attention_attributes *a = infer->attributes;
    if (a->window < 0 || (a->window > 0 && a->causal == LN_ATTENTION_CAUSAL_NONE)) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "window is out of range");
        ln_expected(infer->error, "0, or a positive number with causal");
        return ln_got(infer->error, "%lld%s", (long long)a->window, a->window < 0 ? "" : " without causal");
    }
    const double number = a->cap < 0 || !isfinite(a->cap) ? a->cap : a->scale;
    if (isfinite(number) && a->cap >= 0) return LINNET_OK;
    ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "%s is out of range", number == a->scale ? "scale" : "cap");
    ln_expected(infer->error, "%s", number == a->scale ? "a finite number" : "0 or a positive finite number");
    return ln_got(infer->error, "%g", number);
}

/* Fails unless two sizes are equal or one of them is unknown. */
static linnet_status same(const ln_infer *infer, int i, int64_t size, int j, int64_t other, const char *what) {
    if (size == other || size < 0 || other < 0) return LINNET_OK;
    ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "%s and %s differ in the %s", operand_names[i], operand_names[j],
            what);
    ln_expected(infer->error, "equal sizes");
    return ln_got(infer->error, "%lld and %lld", (long long)size, (long long)other);
}

static int64_t dim_from_end(const ln_tensor *t, int from_end) { return t->dims[t->rank - from_end]; }

/* Broadcasts the leading dimensions of operand i into those of y. */
static linnet_status broadcast_leading(const ln_infer *infer, int i, ln_tensor *y) {
    ln_tensor own = *given(infer, i), all = *y;
    own.rank = (int8_t)(own.rank - 2);
    return ln_broadcast(&own, &all, y, infer->error);
}

/* Checks the keys and values of one part: their depth, their number and their leading dimensions. *keys becomes the
 * number of keys. */
static linnet_status check_part(const ln_infer *infer, int key, int value, ln_tensor *y, int64_t *keys) {
    const bool transposed = ((const ln_attention_attributes *)infer->attributes)->key_transposed;
    const ln_tensor *q = &infer->inputs[0], *k = given(infer, key), *v = given(infer, value);
    linnet_status status = same(infer, 0, dim_from_end(q, 1), key, dim_from_end(k, transposed ? 2 : 1), "depth");
    *keys = dim_from_end(k, transposed ? 1 : 2);
    if (status == LINNET_OK) status = same(infer, key, *keys, value, dim_from_end(v, 2), "number of keys");
    if (*keys < 0) *keys = dim_from_end(v, 2);
    if (status == LINNET_OK && value != LN_ATTENTION_VALUE)
        status = same(infer, LN_ATTENTION_VALUE, dim_from_end(given(infer, LN_ATTENTION_VALUE), 1), value,
                      dim_from_end(v, 1), "size of a value");
    if (status == LINNET_OK) status = broadcast_leading(infer, key, y);
    return status == LINNET_OK ? broadcast_leading(infer, value, y) : status;
}

/* Checks that the mask broadcasts to the scores without making the scores larger. */
static linnet_status check_mask(const ln_infer *infer, const ln_tensor *mask, const ln_tensor *scores) {
    bool fits = mask->rank <= scores->rank;
    for (int i = 1; fits && i <= mask->rank; ++i) {
        const int64_t own = dim_from_end(mask, i), all = dim_from_end(scores, i);
        fits = own == all || own == 1 || own < 0 || all < 0;
    }
    if (fits) return LINNET_OK;
    char wanted[96], got[96];
    ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "the shape of the mask does not match the scores");
    ln_expected(infer->error, "a shape that broadcasts to %s",
                ln_shape_text(scores->dims, scores->rank, wanted, sizeof wanted));
    return ln_got(infer->error, "%s", ln_shape_text(mask->dims, mask->rank, got, sizeof got));
}

static linnet_status check_lengths(const ln_infer *infer, const ln_tensor *lengths, const ln_tensor *y) {
    const int64_t batch = y->rank > 2 ? y->dims[0] : 1;
    if (lengths->rank < 0) return LINNET_OK;
    if (lengths->rank == 1 && (lengths->dims[0] == 1 || lengths->dims[0] == batch || lengths->dims[0] < 0 || batch < 0))
        return LINNET_OK;
    char got[96];
    ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "the shape of lengths is wrong");
    ln_expected(infer->error, "[1], or [%lld], one length for each element of the first dimension of y",
                (long long)batch);
    return ln_got(infer->error, "%s", ln_shape_text(lengths->dims, lengths->rank, got, sizeof got));
}

/* Checks that the past has both keys and values, or neither. */
static linnet_status check_past(const ln_infer *infer) {
    const bool key = given(infer, LN_ATTENTION_PAST_KEY) != NULL, value = given(infer, LN_ATTENTION_PAST_VALUE) != NULL;
    if (key == value) return LINNET_OK;
    ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "only one of past_key and past_value is given");
    ln_expected(infer->error, "both or neither");
    return ln_got(infer->error, "only %s", key ? "past_key" : "past_value");
}

linnet_status ln_infer_attention(const ln_infer *infer) {
    ln_tensor *y = &infer->outputs[0];
    linnet_status status = check_dtypes(infer);
    if (status == LINNET_OK) status = check_attributes(infer);
    if (status == LINNET_OK) status = check_past(infer);
    if (status != LINNET_OK) return status;
    y->dtype = infer->inputs[0].dtype, y->rank = -1;
    for (int i = 0; i < infer->n_inputs; ++i) {
        const ln_tensor *t = given(infer, i);
        if (t == NULL || i == LN_ATTENTION_LENGTHS || i == LN_ATTENTION_MASK) continue;
        if (t->rank < 0) return LINNET_OK;
        if (t->rank >= 2) continue;
        ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "%s is not a matrix", operand_names[i]);
        ln_expected(infer->error, "at least two dimensions");
        return ln_got(infer->error, "%d", t->rank);
    }
    const ln_tensor *q = &infer->inputs[0];
    ln_tensor leading = *q;
    leading.rank = (int8_t)(q->rank - 2);
    int64_t keys = 0, past = 0;
    status = check_part(infer, LN_ATTENTION_KEY, LN_ATTENTION_VALUE, &leading, &keys);
    if (status == LINNET_OK && given(infer, LN_ATTENTION_PAST_KEY) != NULL)
        status = check_part(infer, LN_ATTENTION_PAST_KEY, LN_ATTENTION_PAST_VALUE, &leading, &past);
    if (status != LINNET_OK) return status;
    y->rank = (int8_t)(leading.rank + 2);
    for (int i = 0; i < leading.rank; ++i) y->dims[i] = leading.dims[i];
    y->dims[y->rank - 2] = dim_from_end(q, 2), y->dims[y->rank - 1] = dim_from_end(&infer->inputs[2], 1);
    ln_tensor scores = *y;
    scores.dims[y->rank - 1] = keys < 0 || past < 0 ? -1 : keys + past;
    const ln_tensor *mask = given(infer, LN_ATTENTION_MASK), *lengths = given(infer, LN_ATTENTION_LENGTHS);
    if (mask != NULL && mask->rank >= 0) status = check_mask(infer, mask, &scores);
    return status == LINNET_OK && lengths != NULL ? check_lengths(infer, lengths, y) : status;
}

/* ---- operands as matrices ---- */

/* Sets the strides of an operand. Its last two dimensions are rows and columns, or columns and rows if transposed; its
 * leading dimensions are aligned with those of y. */
static void strides_of(const ln_tensor *t, const ln_attention_view *v, bool transposed, ln_attention_matrix *out) {
    const int own = t->rank - 2;
    for (int i = 0; i < v->n_batch; ++i) {
        const int axis = i - (v->n_batch - own);
        out->batch[i] = axis < 0 || t->dims[axis] == 1 ? 0 : t->strides[axis];
    }
    out->row = t->strides[t->rank - (transposed ? 1 : 2)];
    out->column = t->strides[t->rank - (transposed ? 2 : 1)];
}

/* Sets the strides of the mask, which may have fewer than two dimensions, and sizes of 1 in its last two. */
static void mask_strides(const ln_tensor *t, const ln_attention_view *v, ln_attention_matrix *out) {
    for (int i = 0; i < v->n_batch + 2; ++i) {
        const int axis = i - (v->n_batch + 2 - t->rank);
        const int64_t stride = axis < 0 || t->dims[axis] == 1 ? 0 : t->strides[axis];
        *(i < v->n_batch ? &out->batch[i] : i == v->n_batch ? &out->row : &out->column) = stride;
    }
}

void ln_attention_view_of(const ln_call *call, ln_attention_view *v) {
    const ln_attention_attributes *a = call->attributes;
    const ln_tensor *q = &call->inputs[0], *k = &call->inputs[LN_ATTENTION_KEY], *y = &call->outputs[0];
    memset(v, 0, sizeof *v);
    v->n_batch = y->rank - 2, v->matrices = 1;
    for (int i = 0; i < v->n_batch; ++i) v->dims[i] = y->dims[i], v->matrices *= y->dims[i];
    v->m = dim_from_end(q, 2), v->depth = dim_from_end(q, 1), v->size = dim_from_end(y, 1);
    v->n = dim_from_end(k, a->key_transposed ? 1 : 2);
    if (ln_attention_has(call, LN_ATTENTION_PAST_KEY))
        v->past = dim_from_end(&call->inputs[LN_ATTENTION_PAST_KEY], a->key_transposed ? 1 : 2);
    for (int i = 0; i < LN_ATTENTION_OPERANDS; ++i) {
        if (!ln_attention_has(call, i)) continue;
        const bool key = i == LN_ATTENTION_KEY || i == LN_ATTENTION_PAST_KEY;
        if (i == LN_ATTENTION_MASK)
            mask_strides(&call->inputs[i], v, &v->operand[i]);
        else if (i != LN_ATTENTION_LENGTHS)
            strides_of(&call->inputs[i], v, key && a->key_transposed, &v->operand[i]);
    }
    strides_of(y, v, false, &v->y);
    v->scale = a->scale != 0 ? a->scale : v->depth > 0 ? 1 / sqrt((double)v->depth) : 1;
}

int64_t ln_attention_offset(const ln_attention_view *v, const ln_attention_matrix *operand, int64_t matrix) {
    int64_t offset = 0;
    for (int i = v->n_batch - 1; i >= 0; --i) {
        offset += matrix % v->dims[i] * operand->batch[i];
        matrix /= v->dims[i];
    }
    return offset;
}

/* Returns the number of keys that count for a matrix, which is the length of its row of the batch; `most` if there are
 * no lengths. If the length is out of range, reports the error (ln_index_error) and returns -1. */
static int64_t length_of(const ln_call *call, const ln_attention_view *v, const ln_buffers *b, int64_t matrix,
                         int64_t most) {
    if (!ln_attention_has(call, LN_ATTENTION_LENGTHS)) return most;
    const ln_tensor *t = &call->inputs[LN_ATTENTION_LENGTHS];
    const int64_t row = v->n_batch > 0 && t->dims[0] > 1 ? matrix / (v->matrices / v->dims[0]) : 0;
    const int64_t length = ln_load_i64(b->inputs[LN_ATTENTION_LENGTHS], t->dtype, row * t->strides[0]);
    if (length >= 0 && length <= most) return length;
    ln_index_error(b, "lengths", length, 0, most);
    return -1;
}

int ln_attention_parts(const ln_call *call, const ln_attention_view *v, const ln_buffers *b, int64_t matrix,
                       ln_attention_part parts[2]) {
    const bool past = ln_attention_has(call, LN_ATTENTION_PAST_KEY);
    const int64_t length = length_of(call, v, b, matrix, past ? v->past : v->n);
    if (length < 0) return -1;
    if (past) parts[0] = (ln_attention_part){LN_ATTENTION_PAST_KEY, LN_ATTENTION_PAST_VALUE, length, 0, 0};
    parts[past] =
        (ln_attention_part){LN_ATTENTION_KEY, LN_ATTENTION_VALUE, past ? v->n : length, v->past, past ? length : 0};
    return past ? 2 : 1;
}

void ln_attention_visible(const ln_attention_attributes *a, int64_t m, int64_t total, int64_t row, int64_t *low,
                          int64_t *high) {
    *low = 0, *high = total;
    if (a->causal == LN_ATTENTION_CAUSAL_NONE) return;
    const int64_t position = a->causal == LN_ATTENTION_CAUSAL_END ? row + total - m : row;
    *high = ln_max(0, ln_min(total, position + 1));
    if (a->window > 0) *low = ln_max(0, ln_min(*high, position + 1 - a->window));
}

/* ---- work ---- */

/* Returns the number of scores that are computed: a causal attention skips about half of them. */
static double scores_of(const ln_attention_attributes *a, const ln_attention_view *v) {
    const double keys = (double)(v->n + v->past), queries = (double)(v->m * v->matrices);
    double seen = keys;
    if (a->causal != LN_ATTENTION_CAUSAL_NONE && v->m > 1) seen = ln_max(keys - (double)v->m / 2, keys / 2);
    if (a->window > 0 && seen > (double)a->window) seen = (double)a->window;
    return queries * seen;
}

void ln_count_attention(const ln_call *call, ln_counts *counts) {
    ln_attention_view v;
    ln_attention_view_of(call, &v);
    const double scores = scores_of(call->attributes, &v);
    ln_count_macs(call, counts, scores * (double)(v.depth + v.size));
    counts->work[LN_RATE_MAP] += 14 * scores;
}

/* ---- the reference ---- */

static linnet_status reference_configure(ln_call *call) {
    ln_attention_view *v = call->state = ln_call_state(call, sizeof *v);
    if (v == NULL) return LINNET_OUT_OF_MEMORY;
    ln_attention_view_of(call, v);
    call->work[0] = v->matrices * v->m;
    call->scratch_thread = (size_t)ln_max(1, v->n + v->past) * sizeof(double);
    call->flops = (uint64_t)(2 * scores_of(call->attributes, v) * (double)(v->depth + v->size));
    return LINNET_OK;
}

/* A query or a row of the result. */
typedef struct row {
    int64_t matrix, index;
} row;

static double load(const ln_call *call, const ln_buffers *b, const ln_attention_view *v, int operand, row at,
                   int64_t column) {
    const ln_attention_matrix *o = &v->operand[operand];
    return ln_load_f64(b->inputs[operand], call->inputs[operand].dtype,
                       ln_attention_offset(v, o, at.matrix) + at.index * o->row + column * o->column);
}

/* Returns the score of a query for a key, before the mask. */
static double score_of(const ln_call *call, const ln_buffers *b, const ln_attention_view *v, row query, int key,
                       int64_t index) {
    const double cap = ((const ln_attention_attributes *)call->attributes)->cap;
    double sum = 0;
    for (int64_t i = 0; i < v->depth; ++i)
        sum += load(call, b, v, LN_ATTENTION_QUERY, query, i) * load(call, b, v, key, (row){query.matrix, index}, i);
    sum *= v->scale;
    return cap > 0 ? cap * tanh(sum / cap) : sum;
}

static double masked(const ln_call *call, const ln_buffers *b, const ln_attention_view *v, row query, int64_t slot,
                     double score) {
    if (!ln_attention_has(call, LN_ATTENTION_MASK)) return score;
    const double mask =
        call->inputs[LN_ATTENTION_MASK].dtype == LINNET_BOOL
            ? ((const uint8_t *)
                   b->inputs[LN_ATTENTION_MASK])[ln_attention_offset(v, &v->operand[LN_ATTENTION_MASK], query.matrix) +
                                                 query.index * v->operand[LN_ATTENTION_MASK].row +
                                                 slot * v->operand[LN_ATTENTION_MASK].column] != 0
                  ? 0
                  : -INFINITY
            : load(call, b, v, LN_ATTENTION_MASK, query, slot);
    return score + mask;
}

/* Replaces the scores of one query by its weights, which are not normalized yet. Returns their sum. A score of
 * -INFINITY hides a key. */
static double weigh(double *scores, int64_t n) {
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; ++i) top = scores[i] > top || isnan(scores[i]) ? scores[i] : top;
    for (int64_t i = 0; i < n; ++i) sum += scores[i] = scores[i] == -INFINITY ? 0 : exp(scores[i] - top);
    return sum;
}

static linnet_status reference_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    (void)phase;
    const ln_attention_view *v = call->state;
    double *scores = (double *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    for (int64_t item = begin; item < end; ++item) {
        const row query = {item / v->m, item % v->m};
        ln_attention_part parts[2];
        int64_t low, high;
        const int count = ln_attention_parts(call, v, b, query.matrix, parts);
        if (count < 0) return LINNET_INDEX_OUT_OF_RANGE;
        const int64_t total = parts[count - 1].position + parts[count - 1].count;
        ln_attention_visible(call->attributes, v->m, total, query.index, &low, &high);
        for (int p = 0; p < count; ++p)
            for (int64_t i = 0; i < parts[p].count; ++i) {
                const int64_t at = parts[p].position + i;
                scores[at] = at < low || at >= high ? -INFINITY
                                                    : masked(call, b, v, query, parts[p].slot + i,
                                                             score_of(call, b, v, query, parts[p].key, i));
            }
        const double sum = weigh(scores, total);
        const int64_t to = ln_attention_offset(v, &v->y, query.matrix) + query.index * v->y.row;
        for (int64_t c = 0; c < v->size; ++c) {
            double y = 0;
            for (int p = 0; p < count; ++p)
                for (int64_t i = 0; i < parts[p].count; ++i)
                    if (scores[parts[p].position + i] != 0)
                        y +=
                            scores[parts[p].position + i] * load(call, b, v, parts[p].value, (row){query.matrix, i}, c);
            ln_store_f64(b->outputs[0], call->outputs[0].dtype, to + c * v->y.column, sum == 0 ? 0 : y / sum);
        }
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_attention = {
    .cost = ln_reference_product_cost, .configure = reference_configure, .run = reference_run};
