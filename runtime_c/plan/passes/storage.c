/* storage.c - treats f16 and bf16 as storage types. A value inside the program is kept in f32 where converting takes
 * longer than moving twice the bytes. If only a slow kernel supports f16 and bf16, the op runs in f32 between casts,
 * and casts of constants are folded. */
#include "kernel/cost.h"
#include "kernel/machine.h"
#include "plan/graph/call.h"
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

/* Tells whether only a map reads the value. The map can then take it in f32 and become the op's epilogue. */
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

/* ---- values kept in f32 ------------------------------------------------------------------------------------------ */

/* Tells whether the node can take f32 instead of f16 and bf16: it computes in f32 anyway, or it only moves elements. */
static bool takes_f32(const ln_work_node *node) {
    return node->state == LN_NODE_READY && ln_is_kernel(node) && node->bodies[0] == NULL &&
           (node->op->flags & LN_OP_COMPUTES_F32 || ln_is_family(node, LN_FAMILY_MAP) ||
            ln_is_family(node, LN_FAMILY_COPY));
}

/* Marks the values of f16 and bf16 whose maker and readers all take f32. The values of a copy have one dtype, so either
 * all of them are marked or none. Removing one mark may therefore remove those of other copies, so this is repeated. */
static void mark_kept(const ln_work *w, const int32_t *makers, bool *kept) {
    const double most = (double)w->settings.machine->widest;
    for (int32_t v = 0; v < w->values.count; ++v) {
        const ln_work_value *value = ln_value_at(w, v);
        kept[v] = ln_is_half(value->tensor.dtype) && makers[v] >= 0 && value->variable < 0 && value->host == NULL &&
                  value->tensor.data == NULL && !value->fetched && !value->exported && !value->committed &&
                  takes_f32(ln_node_at(w, makers[v])) && 2 * (double)ln_known_bytes(&value->tensor) <= most;
    }
    for (bool again = true; again;) {
        again = false;
        for (int32_t i = 0; i < w->nodes.count; ++i) {
            const ln_work_node *node = ln_node_at(w, i);
            if (node->state == LN_NODE_GONE) continue;
            bool fits = takes_f32(node);
            const int n = ln_slots(node);
            for (int k = 0; fits && ln_is_family(node, LN_FAMILY_COPY) && k < n + node->n_outputs; ++k) {
                const int32_t v = k < n ? node->inputs[k] : node->outputs[k - n];
                if (v >= 0 && ln_is_half(ln_value_at(w, v)->tensor.dtype) && !kept[v]) fits = false;
            }
            for (int k = 0; !fits && k < n + node->n_outputs; ++k) {
                const int32_t v = k < n ? node->inputs[k] : node->outputs[k - n];
                if (v < 0 || !kept[v]) continue;
                kept[v] = false;
                again = true;
            }
        }
    }
}

/* Tells whether the node computes f16 without conversions, or only moves elements. */
static linnet_status takes_halves(ln_work *w, const ln_work_node *node, bool *takes) {
    *takes = true;
    if (ln_is_family(node, LN_FAMILY_MAP)) return LINNET_OK; /* kernels of other nodes apply most of them */
    if (ln_is_family(node, LN_FAMILY_COPY)) {
        const int n = ln_slots(node);
        bool any[2] = {false, false};
        for (int k = 0; k < n + node->n_outputs; ++k) {
            const int32_t v = k < n ? node->inputs[k] : node->outputs[k - n];
            if (v < 0) continue;
            any[ln_is_half(ln_value_at(w, v)->tensor.dtype)] = true;
        }
        *takes = !(any[0] && any[1]);
        return LINNET_OK;
    }
    if (!ln_computes_half(w, node)) return LINNET_OK;
    ln_call call;
    double ns;
    const linnet_status status = ln_node_call(w, node, &w->pool, &call);
    if (status != LINNET_OK) return status;
    const ln_kernel *kernel = ln_node_kernel(w, &call, &ns);
    *takes = kernel != NULL && (kernel->needs & LN_HALVES) != 0;
    return LINNET_OK;
}

/* Makes values that are `kept` f32, except those of f16 which kernels with arithmetic on f16 make and read. What one
 * node takes depends on all of its values, so this is repeated. */
static linnet_status widen(ln_work *w, const bool *kept) {
    const bool halves = (w->settings.features & LN_HALVES) != 0 && w->settings.precision == LINNET_PRECISION_F16;
    for (int32_t v = 0; v < w->values.count; ++v) {
        ln_tensor *t = &ln_value_at(w, v)->tensor;
        if (kept[v] && !(halves && t->dtype == LINNET_F16)) t->dtype = LINNET_F32;
    }
    for (bool again = halves; again;) {
        again = false;
        for (int32_t i = 0; i < w->nodes.count; ++i) {
            const ln_work_node *node = ln_node_at(w, i);
            bool fits = true;
            if (node->state == LN_NODE_GONE) continue;
            const linnet_status status = takes_halves(w, node, &fits);
            if (status != LINNET_OK) return status;
            const int n = ln_slots(node);
            for (int k = 0; !fits && k < n + node->n_outputs; ++k) {
                const int32_t v = k < n ? node->inputs[k] : node->outputs[k - n];
                if (v < 0 || !kept[v] || ln_value_at(w, v)->tensor.dtype != LINNET_F16) continue;
                ln_value_at(w, v)->tensor.dtype = LINNET_F32;
                again = true;
            }
        }
    }
    return LINNET_OK;
}

/* Tells whether a ready node reads or writes a variable. */
static bool has_variables(const ln_work *w) {
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        for (int k = 0; node->state == LN_NODE_READY && k < ln_slots(node); ++k)
            if (node->inputs[k] >= 0 && ln_value_at(w, node->inputs[k])->variable >= 0) return true;
    }
    return false;
}

/* Keeps values inside the program in f32 if the machine asks for it (ln_machine.widest). Inputs and results of the
 * program stay as they are. Nothing is changed in four cases: with a bound of memory or a frame, because the sizes
 * count; in programs with variables, because a training step must be the same whether one program or two compute it;
 * and with devices, because their costs count conversions. */
static linnet_status keep_in_f32(ln_work *w) {
    if (w->settings.machine->widest <= 0 || w->settings.max_bytes > 0 || w->request.frame != NULL ||
        ln_device_count(w->settings.n_devices) > 0 || has_variables(w))
        return LINNET_OK;
    bool *kept = ln_pool_array(&w->pool, w->values.count, sizeof *kept);
    const int32_t *makers = ln_find_makers(w);
    if (kept == NULL || makers == NULL) return ln_work_no_memory(w);
    mark_kept(w, makers, kept);
    return widen(w, kept);
}

linnet_status ln_pass_storage(ln_work *w) {
    bool any = false;
    for (int32_t i = 0; i < w->nodes.count && !any; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        any = node->state == LN_NODE_READY && ln_computes_half(w, node);
    }
    if (!any) return LINNET_OK;
    const linnet_status kept = keep_in_f32(w);
    if (kept != LINNET_OK) return kept;
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
