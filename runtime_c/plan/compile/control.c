/* control.c - replaces control flow. A call becomes the nodes of its function. An `if` with a known condition becomes
 * the nodes of one branch. A loop becomes its iterations, or one node. */
#include "plan/compile/control.h"

#include "plan/compile/expand.h"
#include "plan/compile/body.h"
#include "plan/compile/infer.h"

#include <string.h>

/* Used when bounds are computed and either branch may run. Both branches are planned, so the bound covers both. */
static linnet_status inline_both(ln_work *w, const ln_work_node *node) {
    const ln_if_attributes *a = node->attributes;
    ln_work_node other = *node;
    int32_t *fetches = ln_pool_array(&w->pool, (int64_t)w->n_fetches + node->n_outputs, sizeof *fetches);
    other.outputs = ln_pool_array(&w->pool, node->n_outputs, sizeof *other.outputs);
    if (w->pool.failed) return ln_work_no_memory(w);
    memcpy(fetches, w->fetches, (size_t)w->n_fetches * sizeof *fetches);
    w->fetches = fetches;
    for (int o = 0; o < node->n_outputs; ++o) {
        other.outputs[o] = -1;
        if (node->outputs[o] < 0) continue;
        const ln_tensor like = ln_value_at(w, node->outputs[o])->tensor;
        if ((other.outputs[o] = ln_work_add_value(w, "", &like)) < 0) return ln_work_no_memory(w);
        w->fetches[w->n_fetches++] = other.outputs[o]; /* fetched, so that the branch is not dead code */
    }
    linnet_status status = ln_inline(w, a->else_function, &other, 1);
    if (status == LINNET_OK) status = ln_inline(w, a->then_function, node, 1);
    for (int o = 0; status == LINNET_OK && o < node->n_outputs; ++o) {
        if (node->outputs[o] < 0) continue;
        const ln_tensor *x = &ln_value_at(w, node->outputs[o])->tensor, *y = &ln_value_at(w, other.outputs[o])->tensor;
        if (x->rank == y->rank && (x->rank <= 0 || memcmp(x->dims, y->dims, (size_t)x->rank * sizeof *x->dims) == 0))
            continue;
        status = ln_fail(w->error, LINNET_UNKNOWN_SHAPE, "the branches of an `if` return different shapes");
        ln_at_node(w->error, node->index, node->name);
    }
    return status;
}

static linnet_status expand_if(ln_work *w, ln_work_node *node) {
    const ln_if_attributes *a = node->attributes;
    const ln_work_value *condition = ln_value_at(w, node->inputs[0]);
    if (!condition->known) return ln_work_append(w, node);
    if (condition->undecided) return inline_both(w, node);
    const bool whole = w->kind == LN_WORK_SIGNATURE && w->settings.whole_branches && w->request.frame == NULL;
    if (condition->tensor.data == NULL && (w->kind == LN_WORK_BODY || whole)) {
        bool done;
        const linnet_status status = ln_branch(w, node, &done);
        if (status != LINNET_OK || done) return status;
    }
    if (condition->tensor.data == NULL) return ln_wait_for_values(w, node);
    const bool holds = ln_load_i64(condition->tensor.data, condition->tensor.dtype, 0) != 0;
    return ln_inline(w, holds ? a->then_function : a->else_function, node, 1);
}

static linnet_status expand_call(ln_work *w, ln_work_node *node) {
    return ln_inline(w, ((const ln_call_attributes *)node->attributes)->callee, node, 0);
}

linnet_status ln_expand_node(ln_work *w, ln_work_node *node) {
    linnet_status (*expand)(ln_work *, ln_work_node *);
    switch (node->op->id) {
    case LN_OP_CALL: expand = expand_call; break;
    case LN_OP_IF: expand = expand_if; break;
    case LN_OP_WHILE: expand = ln_loop; break;
    default: return ln_infer_node(w, node);
    }
    node->state = LN_NODE_WAITING;
    const linnet_status charged = ln_work_charge(w, 1);
    return charged != LINNET_OK ? charged : expand(w, node);
}
