/* storage.c - f16 and bf16 are storage types: if only a slow kernel supports them, the op runs in f32 between casts.
 * Casts of constants are folded, so that weights are converted once. */
#include "plan/graph/fold.h"
#include "plan/passes/passes.h"

#include <string.h>

static const ln_cast_attributes *cast_to(int dtype) {
    static const ln_cast_attributes f32 = {.dtype = LINNET_F32}, f16 = {.dtype = LINNET_F16},
                                    bf16 = {.dtype = LINNET_BF16};
    return dtype == LINNET_F32 ? &f32 : dtype == LINNET_F16 ? &f16 : &bf16;
}

static linnet_status add_cast(ln_work *w, const char *name, int32_t from, int32_t to) {
    ln_work_node *node =
        ln_work_new_node(w, &ln_ops[LN_OP_CAST], cast_to(ln_value_at(w, to)->tensor.dtype), name, -1, 1, 1);
    if (node == NULL) return ln_work_no_memory(w);
    node->inputs[0] = from;
    node->outputs[0] = to;
    node->state = LN_NODE_READY;
    if (ln_value_at(w, from)->tensor.data != NULL)
        return ln_work_fold(w, node->op, node->attributes, 1, node->inputs, 1, node->outputs);
    return ln_work_append(w, node);
}

static linnet_status widened(ln_work *w, int32_t value, int32_t *out) {
    if ((*out = ln_work_twin(w, value)) < 0) return ln_work_no_memory(w);
    ln_value_at(w, *out)->tensor.dtype = LINNET_F32;
    return LINNET_OK;
}

/* Whether only a map reads the value. The map can then take it in f32 and become the op's epilogue. */
static bool only_a_map_reads(const ln_work *w, ln_work_node *const *order, int32_t n_nodes, int32_t value) {
    const ln_work_value *v = ln_value_at(w, value);
    if (v->uses != 1 || v->fetched || v->exported || v->committed) return false;
    for (int32_t i = 0; i < n_nodes; ++i)
        for (int k = 0; k < order[i]->n_inputs; ++k)
            if (order[i]->inputs[k] == value && order[i]->state == LN_NODE_READY)
                return ln_is_family(order[i], LN_FAMILY_MAP) && ln_is_kernel(order[i]);
    return false;
}

static linnet_status wrap(ln_work *w, int32_t *wide, int32_t n_wide, ln_work_node *const *order, int32_t n_nodes,
                          ln_work_node *node) {
    linnet_status status;
    for (int k = 0; k < node->n_inputs; ++k) {
        const int32_t from = node->inputs[k];
        if (from < 0 || !ln_is_half(ln_value_at(w, from)->tensor.dtype)) continue;
        int32_t made = from < n_wide ? wide[from] : -1;
        if (made < 0) {
            if ((status = widened(w, from, &made)) != LINNET_OK) return status;
            if ((status = add_cast(w, node->name, from, made)) != LINNET_OK) return status;
            if (from < n_wide) wide[from] = made;
        }
        node->inputs[k] = made;
    }
    if ((status = ln_work_append(w, node)) != LINNET_OK) return status;
    for (int o = 0; o < node->n_outputs; ++o) {
        const int32_t to = node->outputs[o];
        if (to < 0 || !ln_is_half(ln_value_at(w, to)->tensor.dtype)) continue;
        if (only_a_map_reads(w, order, n_nodes, to)) {
            ln_value_at(w, to)->tensor.dtype = LINNET_F32;
            continue;
        }
        if ((status = widened(w, to, &node->outputs[o])) != LINNET_OK) return status;
        if ((status = add_cast(w, node->name, node->outputs[o], to)) != LINNET_OK) return status;
    }
    return LINNET_OK;
}

linnet_status ln_pass_storage(ln_work *w) {
    bool any = false;
    for (int32_t i = 0; i < w->nodes.count && !any; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        any = node->state == LN_NODE_READY && ln_computes_half(w, node);
    }
    if (!any) return LINNET_OK;
    const int32_t n_values = w->values.count;
    int32_t n_nodes, *wide = ln_pool_array(&w->pool, n_values, sizeof *wide);
    ln_work_node **order = ln_work_take_nodes(w, &n_nodes);
    if (w->pool.failed) return ln_work_no_memory(w);
    for (int32_t i = 0; i < n_values; ++i) wide[i] = -1;
    for (int32_t i = 0; i < n_nodes; ++i) {
        ln_work_node *node = order[i];
        bool better = false;
        linnet_status status = LINNET_OK;
        if (node->state == LN_NODE_READY) status = ln_runs_in_f32(w, node, &better);
        if (status == LINNET_OK)
            status = better ? wrap(w, wide, n_values, order, n_nodes, node) : ln_work_append(w, node);
        if (status != LINNET_OK) return status;
    }
    return ln_work_sweep(w);
}
