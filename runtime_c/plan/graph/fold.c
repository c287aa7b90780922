/* fold.c - decides which values are computed at plan time, within the budget, and frees their memory after the last
   reader. All other values are computed in each run. */
#include "plan/graph/fold.h"

#include "base/layout.h"
#include "kernel/common/copy_kinds.h"

#include <string.h>

enum {
    /* Bytes; a result with more bytes is folded only if it is not much larger than its operands. */
    FOLD_LIMIT = 16 << 20,
    /* Bytes of operands and results of a heavy op (see `heavy`). Up to this limit, the reference kernel folds it, so
       that every machine gets the same bits. Above it, the kernel that a run would take folds it, at the cost of one
       run. */
    HEAVY_LIMIT = 1 << 17
};

void *ln_fold_memory(ln_work *w, uint64_t bytes, int32_t *blob) {
    ln_blob *b = ln_list_add(w, &w->blobs, sizeof *b);
    *blob = w->blobs.count - 1;
    if (b == NULL) return NULL;
    if ((b->data = ln_memory_alloc(w->persistent, bytes)) == NULL) {
        --w->blobs.count;
        return NULL;
    }
    b->size = bytes;
    b->holders = 1;
    if (w->budget != NULL) w->budget->folded += bytes;
    return b->data;
}

/* Makes the value a constant with these dense bytes. Its shape is known. blob -1: the bytes are in the file. */
static void become(ln_work *w, int32_t value, const void *data, int32_t blob) {
    ln_work_value *v = ln_value_at(w, value);
    v->host = v->tensor.data = data;
    v->blob = blob;
    v->known = true;
}

static void let_go(ln_work *w, int32_t value) {
    ln_work_value *v = ln_value_at(w, value);
    if (v->blob < 0) return;
    ln_blob *blob = (ln_blob *)w->blobs.items + v->blob;
    if (--blob->holders == 0) ln_blob_free(w, blob);
    v->blob = -1;
    v->host = v->tensor.data = NULL;
    v->known = false; /* a later access fails instead of reading freed memory */
}

void ln_work_release(ln_work *w, int32_t value) {
    ln_work_value *v = value >= 0 ? ln_value_at(w, value) : NULL;
    if (v != NULL && v->readers > 0 && --v->readers == 0) let_go(w, value);
}

void ln_work_unread(ln_work *w, int32_t value) {
    if (value >= 0 && ln_value_at(w, value)->readers == 0) let_go(w, value);
}

/* ---- what is folded ---------------------------------------------------------------------------------------------- */

/* Tells whether the work of an op can grow with the product of its tensors' sizes. */
static bool heavy(const ln_op *op) { return op->work == LN_WORK_PRODUCT || op->work == LN_WORK_LINES; }

static uint64_t count_of(const ln_work *w, int32_t value) {
    const int64_t count = value >= 0 ? ln_count(&ln_value_at(w, value)->tensor) : 0;
    return count > 0 ? (uint64_t)count : 0;
}

/* Returns an upper bound of the number of operations. Each element of the result counts as many operations as the
   longest operand has elements. If the op only multiplies lines (along one axis each), it counts the elements of the
   longest line. */
static uint64_t operations(const ln_work *w, const ln_work_node *node) {
    uint64_t results = 0, longest = 0;
    for (int o = 0; o < node->n_outputs; ++o) results += count_of(w, node->outputs[o]);
    if (node->op->work == LN_WORK_PROGRAM)
        return results * (uint64_t)(((const ln_map_attributes *)node->attributes)->program.n / 5);
    if (!heavy(node->op)) return 0;
    for (int i = 0; i < node->n_inputs; ++i) {
        uint64_t length = count_of(w, node->inputs[i]);
        if (node->op->work == LN_WORK_LINES && node->inputs[i] >= 0) {
            const ln_tensor *t = &ln_value_at(w, node->inputs[i])->tensor;
            length = 0;
            for (int d = 0; d < t->rank; ++d) length = (uint64_t)ln_max((int64_t)length, t->dims[d]);
        }
        if (length > longest) longest = length;
    }
    return results * longest;
}

/* Tells whether the op is heavy and its tensors are above HEAVY_LIMIT. */
static bool above_heavy_limit(const ln_op *op, uint64_t bytes) { return heavy(op) && bytes > HEAVY_LIMIT; }

static bool within_limits(ln_work *w, const ln_work_node *node) {
    ln_budget *b = w->budget;
    uint64_t in = 0, out = 0, bytes;
    if (node->op->flags & (LN_OP_WRITES | LN_OP_VARIES)) return false;
    for (int i = 0; i < node->n_inputs; ++i) {
        if (node->inputs[i] < 0) continue;
        const ln_work_value *v = ln_value_at(w, node->inputs[i]);
        if (v->tensor.data == NULL && ln_count(&v->tensor) != 0) return false;
        if (ln_bytes(&v->tensor, &bytes)) in += bytes;
    }
    for (int o = 0; o < node->n_outputs; ++o)
        if (node->outputs[o] >= 0 && ln_bytes(&ln_value_at(w, node->outputs[o])->tensor, &bytes)) out += bytes;
    const bool large = above_heavy_limit(node->op, in + out);
    if (large && b->heavy + out > b->most_heavy) return false;
    if (out > FOLD_LIMIT && out > 4 * in) return false;
    const uint64_t work = (uint64_t)ln_max((int64_t)(in + out), (int64_t)operations(w, node));
    if (b->folded + out > b->most_folded || b->work + work > b->most_work) return false;
    b->work += work;
    if (large) b->heavy += out;
    return true;
}

/* In a frame (ln_frame), the limits do not decide: each plan folds exactly the values that the frame's first plan
 * folded. */
static bool as_in_frame(ln_frame *f, bool folds) {
    if (f->buffers != NULL) return f->next_fold < f->n_folds && f->folds[f->next_fold++];
    if (f->n_folds == f->most_folds) {
        const int32_t most = f->most_folds > 0 ? 2 * f->most_folds : 256;
        uint8_t *larger = ln_pool_alloc(&f->pool, (size_t)most);
        if (larger == NULL) {
            f->lost = true;
            return false;
        }
        if (f->n_folds > 0) memcpy(larger, f->folds, (size_t)f->n_folds);
        f->folds = larger;
        f->most_folds = most;
    }
    f->folds[f->n_folds++] = folds;
    return folds;
}

bool ln_foldable(ln_work *w, const ln_work_node *node) {
    const bool folds = within_limits(w, node);
    return w->request.frame != NULL ? as_in_frame(w->request.frame, folds) : folds;
}

bool ln_fold_shared(ln_work *w, const ln_work_node *node) {
    if (!ln_is_family(node, LN_FAMILY_COPY) || !ln_copy_keeps_order(node->attributes)) return false;
    const ln_work_value *from = ln_value_at(w, node->inputs[0]);
    if (from->tensor.data == NULL) return false;
    if (from->blob >= 0) ++((ln_blob *)w->blobs.items + from->blob)->holders;
    become(w, node->outputs[0], from->tensor.data, from->blob);
    return true;
}

linnet_status ln_fold_shape(ln_work *w, const ln_work_node *node) {
    const ln_shape_attributes *a = node->attributes;
    const ln_tensor *x = &ln_value_at(w, node->inputs[0])->tensor;
    int64_t start = a->start < 0 ? a->start + x->rank : a->start;
    start = start < 0 ? 0 : start > x->rank ? x->rank : start;
    const int64_t count = ln_count(&ln_value_at(w, node->outputs[0])->tensor);
    int32_t blob;
    int64_t *dims = ln_fold_memory(w, (uint64_t)(count > 0 ? count : 1) * sizeof *dims, &blob);
    if (dims == NULL) return ln_work_no_memory(w);
    for (int64_t i = 0; i < count && start + i < x->rank; ++i) dims[i] = x->dims[start + i];
    become(w, node->outputs[0], dims, blob);
    return LINNET_OK;
}

int32_t ln_fold_scalar(ln_work *w, const char *name, int dtype, int64_t number) {
    const ln_tensor like = {.dtype = (uint8_t)dtype};
    int32_t blob;
    void *data = ln_fold_memory(w, sizeof number, &blob);
    if (data == NULL) return -1;
    ln_store_i64(data, dtype, 0, number);
    const int32_t at = ln_work_add_value(w, name, &like);
    if (at < 0) return -1;
    ln_set_layout(&ln_value_at(w, at)->tensor, LN_LAYOUT_DENSE);
    become(w, at, data, blob);
    return at;
}

linnet_status ln_work_fold(ln_work *w, const ln_op *op, const void *attributes, int n_inputs, const int32_t *inputs,
                           int n_outputs, const int32_t *outputs) {
    /* So many operands are kept on the stack, because a plan that folds millions of nodes would fill the pool. */
    enum { FEW = 4 };
    ln_tensor few_in[FEW] = {0}, few_out[FEW] = {0};
    void *few_data[FEW] = {0};
    int64_t few_dims[FEW * LN_MAX_RANK] = {0};
    int32_t few_blobs[FEW];
    const bool few = n_outputs <= FEW;
    ln_tensor *in = n_inputs <= FEW ? few_in : ln_pool_array(&w->pool, n_inputs, sizeof *in);
    ln_tensor *out = few ? few_out : ln_pool_array(&w->pool, n_outputs, sizeof *out);
    void **data = few ? few_data : ln_pool_array(&w->pool, n_outputs, sizeof *data);
    int32_t *blobs = few ? few_blobs : ln_pool_array(&w->pool, n_outputs, sizeof *blobs);
    int64_t *true_dims = few ? few_dims : ln_pool_array(&w->pool, (int64_t)n_outputs * LN_MAX_RANK, sizeof *true_dims);
    uint64_t total = 0, bytes;
    if (w->pool.failed) return ln_work_no_memory(w);
    for (int i = 0; i < n_inputs; ++i)
        if (inputs[i] >= 0) {
            const ln_work_value *v = ln_value_at(w, inputs[i]);
            in[i] = v->tensor;
            ln_set_layout(&in[i], LN_LAYOUT_DENSE); /* `data` is always dense */
            if (ln_bytes(&in[i], &bytes)) total += bytes;
        }
    for (int i = 0; i < n_outputs; ++i) {
        if (outputs[i] < 0) continue;
        out[i] = ln_value_at(w, outputs[i])->tensor;
        if (!ln_bytes(&out[i], &bytes)) return ln_fail(w->error, LINNET_TOO_LARGE, "a constant result is too large");
        if ((data[i] = ln_fold_memory(w, bytes, &blobs[i])) == NULL) return ln_work_no_memory(w);
        total += bytes;
        memcpy(true_dims + i * LN_MAX_RANK, out[i].dims, sizeof out[i].dims);
    }
    const bool dependent = (op->flags & LN_OP_DATA_DEPENDENT) != 0;
    /* Fast kernels are used only if they are exact, or if the reference kernel would take too long. */
    const bool fast = (op->flags & LN_OP_EXACT) || above_heavy_limit(op, total);
    const bool reference = w->settings.reference || !fast;
    linnet_status status = ln_evaluate(w->memory, op, attributes, n_inputs, in, n_outputs, out, data,
                                       w->settings.features, reference, dependent ? true_dims : NULL, w->error);
    if (status != LINNET_OK) return status;
    for (int i = 0; i < n_outputs; ++i) {
        if (outputs[i] < 0) continue;
        ln_work_value *v = ln_value_at(w, outputs[i]);
        if (dependent) {
            memcpy(v->tensor.dims, true_dims + i * LN_MAX_RANK, sizeof v->tensor.dims);
            ln_set_layout(&v->tensor, LN_LAYOUT_DENSE);
        }
        become(w, outputs[i], data[i], blobs[i]);
        if (!ln_is_dense(&v->tensor)) v->tensor.data = NULL; /* `data` must be dense, so only steps read this value */
        v->bounded = 0;
    }
    return LINNET_OK;
}
