/* fuse.c - turns maps into epilogues. A map that is the only reader of a heavy op's result is applied to the tiles of
   the result before they are stored. The heavy op moves down to the map's position, where every other operand of the
   map already exists. */
#include "plan/passes/passes.h"

#include "kernel/map.h"

#include <string.h>

/* The ready node that computes the value, or NULL. */
static ln_work_node *maker_of(const ln_work *w, const int32_t *makers, int32_t value, int32_t before) {
    const int32_t at = makers[value];
    if (at < 0 || at >= before) return NULL;
    ln_work_node *node = ln_node_at(w, at);
    return node->state == LN_NODE_READY && node->op != NULL ? node : NULL;
}

static bool candidate(const ln_work *w, const ln_work_node *heavy, const ln_work_node *map, int32_t value) {
    const ln_work_value *v = ln_value_at(w, value);
    return (heavy->op->flags & LN_OP_EPILOGUE) && heavy->map == NULL && heavy->device == map->device &&
           (ln_on_cpu(heavy->device) || ln_device_at(w, heavy->device)->limits.epilogues) && heavy->n_outputs == 1 &&
           v->uses == 1 && !v->fetched && !v->exported && !v->committed && map->n_outputs == 1 &&
           map->outputs[0] >= 0 && heavy->n_inputs + map->n_inputs - 1 <= LN_MAX_OPERANDS;
}

/* The fused node if the shapes fit and a kernel supports it; otherwise NULL. */
static linnet_status fused(ln_work *w, const ln_work_node *heavy, const ln_work_node *map, int tile,
                           ln_work_node **out) {
    *out = NULL;
    ln_tensor inputs[LN_MAX_OPERANDS];
    if (map->n_inputs > LN_MAX_OPERANDS) return LINNET_OK;
    memset(inputs, 0, sizeof inputs);
    for (int i = 0; i < map->n_inputs; ++i)
        if (map->inputs[i] >= 0) inputs[i] = ln_value_at(w, map->inputs[i])->tensor;
    /* f16 and bf16 are storage types only, so a value that is never stored stays f32. */
    if (inputs[tile].dtype == LINNET_F16 || inputs[tile].dtype == LINNET_BF16) inputs[tile].dtype = LINNET_F32;
    const ln_tensor inner = inputs[tile], output = ln_value_at(w, map->outputs[0])->tensor;
    if (!ln_epilogue_fits(map->attributes, inputs, map->n_inputs, tile, &inner, &output)) return LINNET_OK;
    const uint8_t stored_dtype = ln_value_at(w, heavy->outputs[0])->tensor.dtype;
    ln_work_node *node = ln_work_new_node(w, heavy->op, heavy->attributes, heavy->name, heavy->index,
                                          heavy->n_inputs + map->n_inputs - 1, 1);
    if (node == NULL) return ln_work_no_memory(w);
    node->n_inputs = heavy->n_inputs;
    node->n_extra = map->n_inputs - 1;
    memcpy(node->inputs, heavy->inputs, (size_t)heavy->n_inputs * sizeof *node->inputs);
    for (int i = 0, extra = heavy->n_inputs; i < map->n_inputs; ++i)
        if (i != tile) node->inputs[extra++] = map->inputs[i];
    node->outputs[0] = map->outputs[0];
    node->map = map;
    node->tile_input = tile;
    node->inner = heavy->outputs[0];
    node->state = LN_NODE_READY;
    node->device = heavy->device;
    node->reason = heavy->reason;
    node->number = heavy->number;
    ln_call call;
    ln_value_at(w, node->inner)->tensor.dtype = inner.dtype;
    const linnet_status status = ln_node_call(w, node, &w->pool, &call);
    ln_value_at(w, node->inner)->tensor.dtype = stored_dtype;
    if (status == LINNET_OUT_OF_MEMORY) return status;
    if (!ln_on_cpu(node->device)) { /* the device must be able to apply it */
        linnet_step step;
        const ln_device *d = ln_device_at(w, node->device);
        ln_value_at(w, node->inner)->tensor.dtype = inner.dtype;
        const linnet_status made = ln_device_step_of(w, node, node->device, &w->pool, &step);
        ln_value_at(w, node->inner)->tensor.dtype = stored_dtype;
        if (made != LINNET_OK) return made;
        if (d->is.cost(d->is.context, &step) < 0) return LINNET_OK;
        ln_value_at(w, node->inner)->tensor.dtype = inner.dtype;
        *out = node;
        return LINNET_OK;
    }
    if (status == LINNET_OK && ln_node_kernel(w, &call, NULL) != NULL) {
        /* A fused reference kernel would be slower than a fast kernel followed by a map. */
        ln_call plain;
        const linnet_status made = ln_node_call(w, heavy, &w->pool, &plain);
        if (made != LINNET_OK) return made;
        const ln_kernel *with = ln_node_kernel(w, &call, NULL), *without = ln_node_kernel(w, &plain, NULL);
        if (!(with->flags & LN_KERNEL_REFERENCE) || without == NULL || (without->flags & LN_KERNEL_REFERENCE)) {
            ln_value_at(w, node->inner)->tensor.dtype = inner.dtype;
            *out = node;
        }
    }
    return LINNET_OK;
}

linnet_status ln_pass_fuse(ln_work *w) {
    const int32_t *makers = ln_find_makers(w);
    if (makers == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        ln_work_node *map = ln_node_at(w, i);
        if (map->state != LN_NODE_READY || !ln_is_family(map, LN_FAMILY_MAP)) continue;
        for (int tile = 0; tile < map->n_inputs; ++tile) {
            if (map->inputs[tile] < 0) continue;
            ln_work_node *heavy = maker_of(w, makers, map->inputs[tile], i);
            if (heavy == NULL || !candidate(w, heavy, map, map->inputs[tile])) continue;
            ln_work_node *node;
            const linnet_status status = fused(w, heavy, map, tile, &node);
            if (status != LINNET_OK) return status;
            if (node == NULL) continue;
            heavy->state = LN_NODE_GONE;
            map->state = LN_NODE_GONE;
            ((ln_work_node **)w->nodes.items)[i] = node;
            break;
        }
    }
    return LINNET_OK;
}
