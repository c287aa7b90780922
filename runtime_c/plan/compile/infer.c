/* infer.c - shapes and known values of one node without control flow. The node becomes ready, is folded, or waits for
   data. A later segment plans waiting nodes when the values they need have been computed. */
#include "plan/compile/infer.h"

#include "kernel/infer.h"

#include "base/layout.h"
#include "plan/graph/fold.h"

#include <string.h>

enum {
    WANTED_LIMIT = 64, /* the most elements of a value that may determine shapes */
    FEW = 4            /* number of operands or results that fit on the stack */
};

linnet_status ln_wait_for_values(ln_work *w, ln_work_node *node) {
    bool hope = false;
    for (int i = 0; i < node->n_inputs; ++i) {
        if (node->inputs[i] < 0 || !ln_operand_bit(node->op->decides, i)) continue;
        ln_work_value *v = ln_value_at(w, node->inputs[i]);
        if (v->tensor.data != NULL || v->undecided || ln_count(&v->tensor) > WANTED_LIMIT) continue;
        v->wanted = hope = true;
    }
    if (!hope) {
        ln_fail(w->error, LINNET_UNKNOWN_SHAPE, "cannot infer the shape of the result of %s", node->op->name);
        ln_at_node(w->error, node->index, node->name);
        for (int i = 0; i < node->n_inputs; ++i)
            if (node->inputs[i] >= 0 && ln_value_at(w, node->inputs[i])->undecided)
                return ln_got(w->error, "a shape that depends on data and has no upper bound");
        return ln_hint(w->error, "the operands and attributes are known, so this is a bug in the shape rule or the "
                                 "converter; please report it");
    }
    return ln_work_append(w, node);
}

/* Applies the shape rule. bounded[o] gets a bit for every dim of output o that depends on data; `out` then contains the
   upper bound of that dim. */
static linnet_status infer(ln_work *w, ln_work_node *node, ln_tensor *out, uint16_t *bounded) {
    ln_tensor few[FEW] = {0};
    ln_tensor *in = node->n_inputs <= FEW ? few : ln_pool_array(&w->pool, node->n_inputs, sizeof *in);
    if (in == NULL) return ln_work_no_memory(w);
    for (int i = 0; i < node->n_inputs; ++i)
        if (node->inputs[i] >= 0) in[i] = ln_value_at(w, node->inputs[i])->tensor;
    for (int o = 0; o < node->n_outputs; ++o) {
        if (node->outputs[o] < 0) continue;
        const ln_work_value *v = ln_value_at(w, node->outputs[o]);
        out[o].dtype = v->tensor.dtype;
        out[o].quant = v->tensor.quant;
        if (!(node->op->flags & LN_OP_REGISTERED)) continue;
        out[o].rank = v->tensor.rank;
        memcpy(out[o].dims, v->tensor.dims, sizeof out[o].dims);
    }
    ln_infer_facts facts = ln_no_facts;
    const ln_infer call = {.op = node->op,
                           .attributes = node->attributes,
                           .n_inputs = node->n_inputs,
                           .n_outputs = node->n_outputs,
                           .inputs = in,
                           .outputs = out,
                           .error = w->error,
                           .facts = &facts};
    const linnet_status status = ln_infer_outputs(&call);
    if (status != LINNET_OK) {
        ln_at_node(w->error, node->index, node->name);
        if (w->error != NULL && w->error->tensor[0] == 0 && node->n_inputs > 0 && node->inputs[0] >= 0)
            ln_at_tensor(w->error, ln_value_at(w, node->inputs[0])->name);
        return status;
    }
    for (int o = 0; o < node->n_outputs; ++o) bounded[o] = ln_bound_output(&facts, &out[o]);
    return status;
}

/* Computes the op's results: shapes, and values if all operands are known. */
static linnet_status infer_op(ln_work *w, ln_work_node *node) {
    const ln_op *op = node->op;
    ln_tensor few[FEW] = {0};
    uint16_t few_bounded[FEW] = {0};
    const bool small = node->n_outputs <= FEW;
    ln_tensor *out = small ? few : ln_pool_array(&w->pool, node->n_outputs, sizeof *out);
    uint16_t *bounded = small ? few_bounded : ln_pool_array(&w->pool, node->n_outputs, sizeof *bounded);
    if (w->pool.failed) return ln_work_no_memory(w);
    linnet_status status = infer(w, node, out, bounded);
    if (status != LINNET_OK) return status;
    for (int o = 0; o < node->n_outputs; ++o) {
        if (node->outputs[o] < 0) continue;
        if (out[o].rank < 0 || ln_count(&out[o]) < 0) return ln_wait_for_values(w, node);
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
    if (op->family == LN_FAMILY_SHAPE) return ln_fold_shape(w, node);
    if (ln_fold_shared(w, node)) return LINNET_OK;
    if (ln_foldable(w, node)) {
        status = ln_work_fold(w, op, node->attributes, node->n_inputs, node->inputs, node->n_outputs, node->outputs);
        if (status != LINNET_OK) ln_at_node(w->error, node->index, node->name);
        return status;
    }
    node->state = LN_NODE_READY;
    return ln_work_append(w, node);
}

linnet_status ln_infer_node(ln_work *w, ln_work_node *node) {
    node->state = LN_NODE_WAITING;
    const linnet_status charged = ln_work_charge(w, 1);
    if (charged != LINNET_OK) return charged;
    for (int i = 0; i < node->n_inputs; ++i)
        if (node->inputs[i] >= 0 && !ln_value_at(w, node->inputs[i])->known) return ln_work_append(w, node);
    if (ln_is_assign(node) && ln_value_at(w, node->inputs[0])->variable < 0) {
        ln_fail(w->error, LINNET_CORRUPT, "the first operand of assign is not bound to a variable");
        ln_at_node(w->error, node->index, node->name);
        return LINNET_CORRUPT;
    }
    return infer_op(w, node);
}
