/* infer_pass.c - shapes and known values forward through one node: ready, folded, inlined, or waiting for data.
 * What waits is planned by a later segment, when the values it needs have been computed. */
#include "core/expand.h"

#include <string.h>

enum {
    WANTED_LIMIT = 64,     /* elements of a value that may decide about shapes */
    FOLD_LIMIT = 16 << 20, /* bytes: a larger result is only folded when it is not much larger than its operands */
    HEAVY_LIMIT = 1 << 17  /* bytes of operands and results: the reference kernels that fold are slow */
};

/* First operand whose value (not only shape) may decide about shapes. */
static int first_deciding(const ln_op *op) { return op->id == LN_OP_RANGE || op->id == LN_OP_IF ? 0 : 1; }

static linnet_status wait_for_values(ln_work *w, ln_work_node *node) {
    bool hope = false;
    const int last = node->op->id == LN_OP_IF ? 1 : node->n_inputs;
    for (int i = first_deciding(node->op); i < last; ++i) {
        if (node->inputs[i] < 0) continue;
        ln_work_value *v = ln_value_at(w, node->inputs[i]);
        if (v->tensor.data != NULL || v->undecided || ln_count(&v->tensor) > WANTED_LIMIT) continue;
        v->wanted = hope = true;
    }
    if (!hope) {
        ln_fail(w->error, LINNET_UNKNOWN_SHAPE, "the shape of the result of %s cannot be found", node->op->name);
        ln_at_node(w->error, node->index, node->name);
        for (int i = 0; i < node->n_inputs; ++i)
            if (node->inputs[i] >= 0 && ln_value_at(w, node->inputs[i])->undecided)
                return ln_hint(w->error, "data decides it, and nothing bounds it");
        return ln_hint(w->error,
                       "this is a fault of the shape rule or of the converter: operands and attributes are known");
    }
    return ln_work_append(w, node);
}

/* The shape rule. bounded[o] gets a bit for every dim of output o that depends on data; `out` then has its bound. */
static linnet_status infer(ln_work *w, ln_work_node *node, ln_tensor *out, uint16_t *bounded) {
    ln_tensor *in = ln_pool_array(&w->pool, node->n_inputs, sizeof *in);
    if (in == NULL) return ln_work_no_memory(w);
    for (int i = 0; i < node->n_inputs; ++i)
        if (node->inputs[i] >= 0) in[i] = ln_value_at(w, node->inputs[i])->tensor;
    for (int o = 0; o < node->n_outputs; ++o) {
        if (node->outputs[o] < 0) continue;
        const ln_work_value *v = ln_value_at(w, node->outputs[o]);
        out[o].dtype = v->tensor.dtype;
        out[o].quant = v->tensor.quant;
    }
    const ln_infer call = {.op = node->op,
                           .attributes = node->attributes,
                           .n_inputs = node->n_inputs,
                           .n_outputs = node->n_outputs,
                           .inputs = in,
                           .outputs = out,
                           .error = w->error};
    const linnet_status status = node->op->infer(&call);
    if (status != LINNET_OK) {
        ln_at_node(w->error, node->index, node->name);
        if (w->error != NULL && w->error->tensor[0] == 0 && node->n_inputs > 0 && node->inputs[0] >= 0)
            ln_at_tensor(w->error, ln_value_at(w, node->inputs[0])->name);
        return status;
    }
    for (int o = 0; o < node->n_outputs; ++o) bounded[o] = ln_bound_output(&call, &out[o]);
    return status;
}

/* Whether the work of an op can grow with the product of its tensors' sizes. */
static bool heavy(const ln_op *op) {
    switch (op->id) {
    case LN_OP_MATMUL:
    case LN_OP_CONV:
    case LN_OP_CONV_TRANSPOSE:
    case LN_OP_POOL:
    case LN_OP_RECURRENT: return true;
    default: return false;
    }
}

static bool foldable(const ln_work *w, const ln_work_node *node) {
    uint64_t in = 0, out = 0, bytes;
    if (ln_is_assign(node)) return false;
    for (int i = 0; i < node->n_inputs; ++i) {
        if (node->inputs[i] < 0) continue;
        const ln_work_value *v = ln_value_at(w, node->inputs[i]);
        if (v->tensor.data == NULL && ln_count(&v->tensor) != 0) return false;
        if (ln_bytes(&v->tensor, &bytes)) in += bytes;
    }
    for (int o = 0; o < node->n_outputs; ++o)
        if (node->outputs[o] >= 0 && ln_bytes(&ln_value_at(w, node->outputs[o])->tensor, &bytes)) out += bytes;
    if (heavy(node->op) && in + out > HEAVY_LIMIT) return false;
    return out <= FOLD_LIMIT || out <= 4 * in;
}

/* A reshape of a constant is the same bytes under other dims. */
static bool share_bytes(ln_work *w, const ln_work_node *node) {
    if (node->op->id != LN_OP_COPY) return false;
    const int64_t kind = ((const ln_copy_attributes *)node->attributes)->kind;
    if (kind != LN_COPY_KIND_IDENTITY && kind != LN_COPY_KIND_RESHAPE && kind != LN_COPY_KIND_SQUEEZE &&
        kind != LN_COPY_KIND_UNSQUEEZE)
        return false;
    const ln_work_value *from = ln_value_at(w, node->inputs[0]);
    ln_work_value *to = ln_value_at(w, node->outputs[0]);
    if (from->tensor.data == NULL) return false;
    to->host = to->tensor.data = from->tensor.data;
    return true;
}

/* `shape` reads no data: its result is written here and now. */
static linnet_status fold_shape(ln_work *w, const ln_work_node *node) {
    const ln_shape_attributes *a = node->attributes;
    const ln_tensor *x = &ln_value_at(w, node->inputs[0])->tensor;
    ln_work_value *y = ln_value_at(w, node->outputs[0]);
    int64_t start = a->start < 0 ? a->start + x->rank : a->start;
    start = start < 0 ? 0 : start > x->rank ? x->rank : start;
    const int64_t count = ln_count(&y->tensor);
    ln_blob *blob = ln_list_add(w, &w->blobs, sizeof *blob);
    if (blob == NULL) return ln_work_no_memory(w);
    blob->size = (size_t)(count > 0 ? count : 1) * sizeof(int64_t);
    if ((blob->data = ln_memory_alloc(w->persistent, blob->size)) == NULL) {
        --w->blobs.count;
        return ln_work_no_memory(w);
    }
    for (int64_t i = 0; i < count && start + i < x->rank; ++i) ((int64_t *)blob->data)[i] = x->dims[start + i];
    y->host = y->tensor.data = blob->data;
    return LINNET_OK;
}

/* Where bounds are looked for and either branch may be run: both are planned, which takes no less than one. */
static linnet_status inline_both(ln_work *w, const ln_work_node *node) {
    const ln_if_attributes *a = node->attributes;
    ln_work_node other = *node;
    int32_t *fetches = ln_pool_array(&w->pool, (int64_t)w->n_fetches + node->n_outputs, sizeof *fetches);
    other.outputs = ln_pool_array(&w->pool, node->n_outputs, sizeof *other.outputs);
    if (fetches == NULL || other.outputs == NULL) return ln_work_no_memory(w);
    memcpy(fetches, w->fetches, (size_t)w->n_fetches * sizeof *fetches);
    w->fetches = fetches;
    for (int o = 0; o < node->n_outputs; ++o) {
        other.outputs[o] = -1;
        if (node->outputs[o] < 0) continue;
        const ln_tensor like = ln_value_at(w, node->outputs[o])->tensor;
        if ((other.outputs[o] = ln_work_add_value(w, "", &like)) < 0) return ln_work_no_memory(w);
        w->fetches[w->n_fetches++] = other.outputs[o]; /* kept, so that the branch is not dead code */
    }
    linnet_status status = ln_inline(w, a->else_function, &other, 1);
    if (status == LINNET_OK) status = ln_inline(w, a->then_function, node, 1);
    for (int o = 0; status == LINNET_OK && o < node->n_outputs; ++o) {
        if (node->outputs[o] < 0) continue;
        const ln_tensor *x = &ln_value_at(w, node->outputs[o])->tensor, *y = &ln_value_at(w, other.outputs[o])->tensor;
        if (x->rank == y->rank && (x->rank <= 0 || memcmp(x->dims, y->dims, (size_t)x->rank * sizeof *x->dims) == 0))
            continue;
        status = ln_fail(w->error, LINNET_UNKNOWN_SHAPE, "the branches of an `if` give different shapes");
        ln_at_node(w->error, node->index, node->name);
    }
    return status;
}

linnet_status ln_pass_infer(ln_work *w, ln_work_node *node) {
    const ln_op *op = node->op;
    node->state = LN_NODE_WAITING;
    if (op->id == LN_OP_CALL) return ln_inline(w, ((const ln_call_attributes *)node->attributes)->callee, node, 0);
    if (op->id == LN_OP_IF) {
        const ln_if_attributes *a = node->attributes;
        const ln_work_value *condition = ln_value_at(w, node->inputs[0]);
        if (!condition->known) return ln_work_append(w, node);
        if (condition->undecided) return inline_both(w, node);
        if (condition->tensor.data == NULL && w->nested) {
            bool done;
            const linnet_status status = ln_branch(w, node, &done);
            if (status != LINNET_OK || done) return status;
        }
        if (condition->tensor.data == NULL) return wait_for_values(w, node);
        return ln_inline(
            w, ln_load_i64(condition->tensor.data, condition->tensor.dtype, 0) ? a->then_function : a->else_function,
            node, 1);
    }
    if (op->id == LN_OP_WHILE) return ln_loop(w, node);
    for (int i = 0; i < node->n_inputs; ++i)
        if (node->inputs[i] >= 0 && !ln_value_at(w, node->inputs[i])->known) return ln_work_append(w, node);
    if (ln_is_assign(node) && ln_value_at(w, node->inputs[0])->variable < 0) {
        ln_fail(w->error, LINNET_CORRUPT, "assign needs a tensor that is bound to a variable as its first operand");
        ln_at_node(w->error, node->index, node->name);
        return LINNET_CORRUPT;
    }
    ln_tensor *out = ln_pool_array(&w->pool, node->n_outputs, sizeof *out);
    uint16_t *bounded = ln_pool_array(&w->pool, node->n_outputs, sizeof *bounded);
    if (out == NULL || bounded == NULL) return ln_work_no_memory(w);
    linnet_status status = infer(w, node, out, bounded);
    if (status != LINNET_OK) return status;
    for (int o = 0; o < node->n_outputs; ++o) {
        if (node->outputs[o] < 0) continue;
        if (out[o].rank < 0 || ln_count(&out[o]) < 0) return wait_for_values(w, node);
    }
    for (int o = 0; o < node->n_outputs; ++o) {
        if (node->outputs[o] < 0) continue;
        ln_work_value *v = ln_value_at(w, node->outputs[o]);
        uint64_t bytes;
        if (!ln_bytes(&out[o], &bytes)) {
            ln_fail(w->error, LINNET_TOO_LARGE, "the result of %s is too large", op->name);
            ln_at_node(w->error, node->index, node->name);
            ln_at_tensor(w->error, v->name);
            return LINNET_TOO_LARGE;
        }
        v->tensor = out[o];
        v->tensor.data = NULL;
        ln_set_layout(&v->tensor, LN_LAYOUT_DENSE);
        v->known = bounded[o] == 0;
        v->bounded = bounded[o];
    }
    if (op->id == LN_OP_SHAPE) return fold_shape(w, node);
    if (foldable(w, node)) {
        if (share_bytes(w, node)) return LINNET_OK;
        status = ln_work_fold(w, op, node->attributes, node->n_inputs, node->inputs, node->n_outputs, node->outputs);
        if (status != LINNET_OK) ln_at_node(w->error, node->index, node->name);
        return status;
    }
    node->state = LN_NODE_READY;
    return ln_work_append(w, node);
}
