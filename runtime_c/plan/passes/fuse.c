/* fuse.c - turns maps into epilogues. A map that is the only reader of a heavy op's result is applied to the tiles of
   the result before they are stored. The heavy op moves down to the map's position, where every other operand of the
   map already exists. */
#include "plan/graph/call.h"
#include "plan/graph/device_nodes.h"
#include "plan/graph/epilogue.h"
#include "plan/passes/passes.h"

/* Sets *can to whether the place of the nodes can run the op and the map as one step. */
static linnet_status can_run(ln_work *w, const ln_work_node *node, const ln_work_node *heavy, bool *can) {
    *can = false;
    if (!ln_on_cpu(node->device)) {
        linnet_step step;
        const linnet_device *d = &ln_device_at(w, node->device)->is;
        const linnet_status status = ln_device_step_of(w, node, node->device, &w->pool, &step);
        if (status == LINNET_OK) *can = d->cost(d->context, &step) >= 0;
        return status;
    }
    ln_call call, plain;
    linnet_status status = ln_node_call(w, node, &w->pool, &call);
    if (status == LINNET_OUT_OF_MEMORY) return status;
    const ln_kernel *with = status == LINNET_OK ? ln_node_kernel(w, &call, NULL) : NULL;
    if (with == NULL) return LINNET_OK;
    /* A fused reference kernel would be slower than a fast kernel followed by a map. */
    status = ln_node_call(w, heavy, &w->pool, &plain);
    const ln_kernel *without = status == LINNET_OK ? ln_node_kernel(w, &plain, NULL) : NULL;
    *can = !(with->flags & LN_KERNEL_REFERENCE) || without == NULL || (without->flags & LN_KERNEL_REFERENCE);
    return status;
}

linnet_status ln_pass_fuse(ln_work *w) {
    const int32_t *makers = ln_find_makers(w);
    if (makers == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        ln_work_node *map = ln_node_at(w, i);
        if (map->state != LN_NODE_READY || !ln_is_family(map, LN_FAMILY_MAP)) continue;
        for (int tile = 0; tile < map->n_inputs; ++tile) {
            ln_work_node *heavy = ln_epilogue_op(w, makers, map, i, tile, map->device), *node;
            bool can = false;
            if (heavy == NULL || heavy->device != map->device) continue;
            linnet_status status = ln_epilogue_node(w, heavy, map, tile, LN_LAYOUT_DENSE, &node);
            if (status == LINNET_OK && node != NULL) status = can_run(w, node, heavy, &can);
            if (status != LINNET_OK) return status;
            if (!can) continue;
            heavy->state = LN_NODE_GONE;
            map->state = LN_NODE_GONE;
            ((ln_work_node **)w->nodes.items)[i] = node;
            break;
        }
    }
    return LINNET_OK;
}
