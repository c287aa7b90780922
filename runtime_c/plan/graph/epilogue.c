/* epilogue.c - finds ops that can have an epilogue, and makes nodes that are an op with its epilogue. ln_pass_places
   asks what such nodes cost, and ln_pass_fuse puts them into the graph. */
#include "plan/graph/epilogue.h"

#include "base/layout.h"
#include "map/map_epilogue.h"
#include "plan/graph/call.h"

#include <string.h>

/* Returns the number of operands that an op has if it has an epilogue. Optional operands that the node leaves out are
 * then listed as absent, so that the first operand of the epilogue always has the same number. */
static int32_t own_inputs(const ln_work_node *op) {
    return op->n_inputs > op->op->max_inputs ? op->n_inputs : op->op->max_inputs;
}

ln_work_node *ln_epilogue_op(const ln_work *w, const int32_t *makers, const ln_work_node *map, int32_t at, int tile,
                             uint8_t place) {
    const int32_t value = map->inputs[tile], maker = value >= 0 ? makers[value] : -1;
    if (maker < 0 || maker >= at) return NULL;
    ln_work_node *op = ln_node_at(w, maker);
    const ln_work_value *v = ln_value_at(w, value);
    const bool of_bytes = ln_is_byte(v->tensor.dtype); /* on a device, no epilogue is applied to results of 8 bits */
    const bool fits =
        op->state == LN_NODE_READY && op->op != NULL && (op->op->flags & LN_OP_EPILOGUE) && op->map == NULL &&
        (ln_on_cpu(place) || (ln_device_at(w, place)->limits.epilogues && !of_bytes)) && op->n_outputs == 1 &&
        v->uses == 1 && !v->fetched && !v->exported && !v->committed && map->n_outputs == 1 && map->outputs[0] >= 0 &&
        own_inputs(op) + map->n_inputs - 1 <= LN_MAX_OPERANDS;
    return fits ? op : NULL;
}

static ln_tensor tensor_in(const ln_work *w, int32_t value, int layout, int rank) {
    ln_tensor t = ln_value_at(w, value)->tensor;
    if (layout == LN_LAYOUT_CHANNELS_LAST && t.rank >= 3 && t.rank == rank) ln_set_layout(&t, layout);
    return t;
}

linnet_status ln_epilogue_node(ln_work *w, const ln_work_node *op, const ln_work_node *map, int tile, int layout,
                               ln_work_node **out) {
    *out = NULL;
    ln_tensor inputs[LN_MAX_OPERANDS];
    if (map->n_inputs > LN_MAX_OPERANDS) return LINNET_OK;
    memset(inputs, 0, sizeof inputs);
    const int rank = ln_value_at(w, map->inputs[tile])->tensor.rank;
    for (int i = 0; i < map->n_inputs; ++i)
        if (map->inputs[i] >= 0) inputs[i] = tensor_in(w, map->inputs[i], layout, rank);
    if (ln_is_half(inputs[tile].dtype)) inputs[tile].dtype = LINNET_F32; /* ln_node_call does the same */
    const ln_tensor inner = inputs[tile], output = tensor_in(w, map->outputs[0], layout, rank);
    if (!ln_epilogue_fits(map->attributes, inputs, map->n_inputs, tile, &inner, &output)) return LINNET_OK;
    const int32_t own = own_inputs(op);
    ln_work_node *node = ln_work_new_node(w, op->op, op->attributes, op->name, op->index, own + map->n_inputs - 1, 1);
    if (node == NULL) return ln_work_no_memory(w);
    node->n_inputs = own;
    node->n_extra = map->n_inputs - 1;
    memcpy(node->inputs, op->inputs, (size_t)op->n_inputs * sizeof *node->inputs);
    for (int32_t i = op->n_inputs; i < own; ++i) node->inputs[i] = -1;
    for (int i = 0, extra = own; i < map->n_inputs; ++i)
        if (i != tile) node->inputs[extra++] = map->inputs[i];
    node->outputs[0] = map->outputs[0];
    node->map = map;
    node->tile_input = tile;
    node->inner = op->outputs[0];
    node->state = LN_NODE_READY;
    node->device = op->device;
    node->reason = op->reason;
    node->number = op->number;
    *out = node;
    return LINNET_OK;
}

linnet_status ln_epilogue_saving(ln_work *w, const int32_t *makers, const double *costs, const bool *last, int32_t at,
                                 int32_t *op, double *saved) {
    const ln_work_node *map = ln_node_at(w, at);
    *saved = 0;
    for (int tile = 0; tile < map->n_inputs && *saved == 0; ++tile) {
        const ln_work_node *heavy = ln_epilogue_op(w, makers, map, at, tile, LN_CPU);
        if (heavy == NULL || !ln_is_kernel(heavy)) continue;
        const int32_t maker = makers[map->inputs[tile]];
        if (costs[at] < 0 && costs[maker] < 0) continue; /* neither can move */
        const int layout = last[map->inputs[tile]] ? LN_LAYOUT_CHANNELS_LAST : LN_LAYOUT_DENSE;
        const ln_work_node *parts[] = {heavy, map, NULL};
        ln_work_node *node;
        double ns[3];
        linnet_status status = ln_epilogue_node(w, heavy, map, tile, layout, &node);
        if (status != LINNET_OK) return status;
        if (node == NULL) continue;
        parts[2] = node;
        for (int k = 0; k < 3 && status == LINNET_OK; ++k) status = ln_node_cost(w, parts[k], layout, &ns[k]);
        if (status != LINNET_OK) return status;
        *op = maker;
        *saved = ln_on_threads(w, ns[0]) + ln_on_threads(w, ns[1]) - ln_on_threads(w, ns[2]);
        if (!(*saved > 0)) *saved = 0; /* NaN, too: no kernel can run both */
    }
    return LINNET_OK;
}
