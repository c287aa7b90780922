/* alias.c - puts every value into a buffer. A buffer that an update reads is marked as a gradient.
 */
#include "plan/graph/buffers.h"
#include "plan/passes/passes.h"

/* Marks the buffers in the arena whose values an update reads. */
static void mark_gradients(ln_work *w) {
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        bool update = false;
        for (int32_t o = 0; o < node->n_outputs; ++o)
            update |= node->outputs[o] >= 0 && ln_value_at(w, node->outputs[o])->committed && !ln_is_assign(node);
        for (int32_t k = node->map != NULL ? node->n_inputs : 0; update && k < ln_slots(node); ++k) {
            const int32_t b = node->inputs[k] >= 0 ? ln_home_of(w, node->inputs[k]).buffer : -1;
            if (b >= 0) ln_buffer_at(w, b)->gradient = ln_buffer_at(w, b)->kind == LN_REGION_ARENA;
        }
    }
}

linnet_status ln_pass_alias(ln_work *w) {
    const linnet_status status = ln_find_buffers(w);
    if (status == LINNET_OK) mark_gradients(w);
    return status;
}
