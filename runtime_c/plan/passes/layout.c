/* layout.c - gives every value the layout that plan/graph/layouts.c chooses, and inserts the conversions. */
#include "base/layout.h"

#include "plan/graph/fold.h"
#include "plan/graph/layouts.h"
#include "plan/passes/passes.h"

#include <string.h>

enum wish { FREE = LN_PREFER_FREE, DENSE = LN_PREFER_DENSE, LAST = LN_PREFER_CHANNELS_LAST };

/* Replaces *value by a value in the wanted layout: the same value, a constant folded into that layout, or the result of
 * a new identity node. */
static linnet_status convert(ln_work *w, int32_t *others, int32_t n_others, const char *name, int32_t *value,
                             int wish) {
    const ln_work_value *v = ln_value_at(w, *value);
    if (wish == DENSE ? ln_is_dense(&v->tensor) : ln_is_channels_last(&v->tensor)) return LINNET_OK;
    const int32_t from = *value;
    if (from < n_others && others[from] >= 0) {
        *value = others[from];
        return LINNET_OK;
    }
    const bool constant = v->tensor.data != NULL;
    const int32_t made = ln_work_twin(w, from);
    if (made < 0) return ln_work_no_memory(w);
    ln_set_layout(&ln_value_at(w, made)->tensor, wish == LAST ? LN_LAYOUT_CHANNELS_LAST : LN_LAYOUT_DENSE);
    ln_work_node *node = ln_work_identity(w, name, from, made);
    if (node == NULL) return ln_work_no_memory(w);
    if (from < n_others) others[from] = made;
    *value = made;
    if (constant) return ln_work_fold(w, node->op, node->attributes, 1, node->inputs, 1, node->outputs);
    return ln_work_append(w, node);
}

/* Makes a fetched or exported value dense. The node, which computes channels-last data, then writes another value,
   which is converted. */
static linnet_status give_dense(ln_work *w, int32_t *others, ln_work_node *node, int o, ln_work_node **after) {
    const int32_t value = node->outputs[o], twin = ln_work_twin(w, value);
    if (twin < 0) return ln_work_no_memory(w);
    ln_set_layout(&ln_value_at(w, value)->tensor, LN_LAYOUT_DENSE);
    node->outputs[o] = twin;
    others[value] = twin;
    *after = ln_work_identity(w, node->name, twin, value);
    return *after != NULL ? LINNET_OK : ln_work_no_memory(w);
}

/* Returns a copy of a value that cannot be returned itself: an input, a variable, or a value of an earlier segment.
 */
static linnet_status copy_value(ln_work *w, const char *name, int32_t from, int32_t *to) {
    if ((*to = ln_work_twin(w, from)) < 0) return ln_work_no_memory(w);
    ln_work_node *node = ln_work_identity(w, name, from, *to);
    return node != NULL ? ln_work_append(w, node) : ln_work_no_memory(w);
}

static bool fetched_before(const ln_work *w, int32_t i) {
    for (int32_t k = 0; k < i; ++k)
        if (w->fetches[k] == w->fetches[i]) return true;
    return false;
}

static linnet_status convert_operands(ln_work *w, int32_t *others, int32_t n_others, ln_work_node *node) {
    linnet_status status;
    const int32_t y = node->n_outputs > 0 ? node->outputs[0] : -1;
    for (int k = 0; k < node->n_inputs; ++k) {
        if (node->inputs[k] < 0) continue;
        const int32_t like = y >= 0 ? y : node->inputs[k];
        const int wish =
            w->settings.reference ? (int)DENSE : ln_layout_read(w, node, k, ln_is_dense(&ln_value_at(w, like)->tensor));
        if (wish != FREE && ln_value_at(w, node->inputs[k])->tensor.rank >= 3 &&
            (status = convert(w, others, n_others, node->name, &node->inputs[k], wish)) != LINNET_OK)
            return status;
    }
    if (ln_is_assign(node)) {
        const ln_work_value *v = ln_value_at(w, node->inputs[1]);
        if (v->variable >= 0 && (status = copy_value(w, node->name, node->inputs[1], &node->inputs[1])) != LINNET_OK)
            return status;
        ln_value_at(w, node->inputs[1])->committed = true;
    }
    if ((status = ln_work_append(w, node)) != LINNET_OK) return status;
    for (int o = 0; o < node->n_outputs; ++o) {
        if (node->outputs[o] < 0) continue;
        const ln_work_value *v = ln_value_at(w, node->outputs[o]);
        if ((!v->fetched && !v->exported) || ln_is_dense(&v->tensor)) continue;
        ln_work_node *after = NULL;
        if ((status = give_dense(w, others, node, o, &after)) != LINNET_OK) return status;
        if ((status = ln_work_append(w, after)) != LINNET_OK) return status;
    }
    return LINNET_OK;
}

linnet_status ln_pass_layout(ln_work *w) {
    const int32_t n_values = w->values.count;
    int32_t n_nodes;
    bool *last = ln_pool_array(&w->pool, n_values, sizeof *last);
    int32_t *others = ln_pool_array(&w->pool, n_values, sizeof *others);
    if (w->pool.failed) return ln_work_no_memory(w);
    for (int32_t i = 0; i < n_values; ++i) others[i] = -1;
    if (!w->settings.reference) {
        const linnet_status status = ln_choose_layouts(w, last);
        if (status != LINNET_OK) return status;
        for (int32_t i = 0; i < n_values; ++i)
            if (last[i]) ln_set_layout(&ln_value_at(w, i)->tensor, LN_LAYOUT_CHANNELS_LAST);
    }
    ln_work_node **order = ln_work_take_nodes(w, &n_nodes);
    if (order == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < n_nodes; ++i) {
        const linnet_status status = order[i]->state == LN_NODE_READY ? convert_operands(w, others, n_values, order[i])
                                                                      : ln_work_append(w, order[i]);
        if (status != LINNET_OK) return status;
    }
    for (int32_t i = 0; i < w->n_fetches; ++i) {
        if (w->fetches[i] < 0) continue;
        const ln_work_value *v = ln_value_at(w, w->fetches[i]);
        bool own = v->host != NULL || (v->input < 0 && v->variable < 0 && !v->imported);
        if (w->request.separate) own &= v->host == NULL && !fetched_before(w, i);
        if (!v->known || own) continue;
        const linnet_status status = copy_value(w, v->name, w->fetches[i], &w->fetches[i]);
        if (status != LINNET_OK) return status;
    }
    return ln_work_sweep(w);
}
