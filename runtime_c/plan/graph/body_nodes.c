/* body_nodes.c - loops and branches that are one node, as the passes see them that place nodes: what is in their
 * bodies, where it may run, and how long it takes on the CPU. */
#include "plan/graph/body_nodes.h"

#include "base/layout.h"
#include "plan/graph/call.h"
#include "plan/graph/epilogue.h"
#include "plan/graph/views.h"

const ln_function *ln_body_function(const ln_work *w, const ln_work_node *node, int k) {
    const ln_while_attributes *loop = node->attributes;
    const ln_if_attributes *branch = node->attributes;
    const int64_t function = node->bodies[1] == NULL ? loop->body_function
                             : k == 0                ? branch->then_function
                                                     : branch->else_function;
    return &w->model->functions[function];
}

int32_t ln_carried(const ln_work_node *node) {
    return node->bodies[1] == NULL ? (int32_t)((const ln_while_attributes *)node->attributes)->carried : 0;
}

int64_t ln_body_trips(const ln_work *w, const ln_work_node *node) {
    const bool bounded = node->bodies[1] == NULL && node->n_inputs > 0 && node->inputs[0] >= 0;
    return ln_trips(bounded ? &ln_value_at(w, node->inputs[0])->tensor : NULL);
}

void ln_body_sweep(const ln_work *w, const ln_work_node *node) {
    for (int k = 0; k < 2 && node->bodies[k] != NULL; ++k) {
        ln_work *b = node->bodies[k];
        ln_work_sweep(b);
        for (int32_t i = 0; i < b->nodes.count; ++i) ln_body_sweep(w, ln_node_at(b, i));
    }
}

static bool is_known(const ln_work *w, int32_t value) {
    const ln_work_value *v = ln_value_at(w, value);
    return v->tensor.rank >= 0 && v->bounded == 0 && ln_count(&v->tensor) > 0;
}

/* Tells whether a device may get the value: the body computes it, or it is a constant or an input of the body. */
static bool is_inside(const ln_work *b, const ln_function *f, int32_t value) {
    bool input = false;
    for (int32_t p = 0; p < f->n_inputs; ++p) input |= f->inputs[p] == value;
    return input || ln_value_at(b, value)->variable < 0;
}

static bool body_is_whole(const ln_work *b, const ln_function *f) {
    for (int32_t p = 0; p < f->n_inputs; ++p)
        if (ln_value_at(b, f->inputs[p])->tensor.rank < 0) return false;
    for (int32_t o = 0; o < f->n_outputs; ++o)
        if (b->fetches[o] >= 0 && !is_inside(b, f, b->fetches[o])) return false;
    for (int32_t i = 0; i < b->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(b, i);
        if (ln_is_assign(node) || (node->op->flags & LN_OP_DATA_DEPENDENT)) return false;
        if (node->bodies[0] != NULL && !ln_body_is_whole(b, node)) return false;
        for (int k = 0; k < node->n_inputs + node->n_outputs; ++k) {
            const int32_t v = k < node->n_inputs ? node->inputs[k] : node->outputs[k - node->n_inputs];
            if (v >= 0 && (!is_known(b, v) || !is_inside(b, f, v))) return false;
        }
    }
    return true;
}

bool ln_body_is_whole(const ln_work *w, const ln_work_node *node) {
    for (int o = 0; o < node->n_outputs; ++o)
        if (node->outputs[o] >= 0 && !is_known(w, node->outputs[o])) return false;
    for (int k = 0; k < 2 && node->bodies[k] != NULL; ++k)
        if (!body_is_whole(node->bodies[k], ln_body_function(w, node, k))) return false;
    return true;
}

ln_places ln_body_places(const ln_work *w, const ln_work_node *node, bool *hinted) {
    bool inner = false, exact = false;
    const int32_t named = ln_hinted_place(w, node, &exact);
    ln_places places = named >= 0 ? (ln_places)1 << named : ln_scope_places(w, node->scope);
    *hinted = named >= 0;
    if (node->bodies[0] == NULL || exact) return places;
    for (int k = 0; k < 2 && node->bodies[k] != NULL; ++k) {
        const ln_work *b = node->bodies[k];
        for (int32_t i = 0; i < b->nodes.count; ++i) {
            if (ln_is_view(b, ln_node_at(b, i))) continue;
            places &= ln_body_places(b, ln_node_at(b, i), &inner);
            *hinted |= inner;
        }
    }
    return places != 0 ? places : (ln_places)1 << LN_CPU;
}

/* Adds up the nodes of a body. Views take no time, and neither do the maps that become epilogues. */
static linnet_status add_nodes(ln_work *b, double *sum) {
    const int32_t *makers = ln_find_makers(b);
    if (makers == NULL) return ln_work_no_memory(b);
    for (int32_t i = 0; i < b->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(b, i);
        bool free = ln_is_view(b, node);
        for (int k = 0; ln_is_family(node, LN_FAMILY_MAP) && k < node->n_inputs; ++k)
            free |= !b->settings.reference && ln_epilogue_op(b, makers, node, i, k, LN_CPU) != NULL;
        double ns = 0;
        const linnet_status status = free ? LINNET_OK : ln_body_cost(b, node, &ns);
        if (status != LINNET_OK) return status;
        *sum += ns;
    }
    return LINNET_OK;
}

linnet_status ln_body_cost(ln_work *w, const ln_work_node *node, double *ns) {
    linnet_status status = LINNET_OK;
    *ns = 0;
    if (node->bodies[0] == NULL) {
        status = ln_node_cost(w, node, LN_LAYOUT_CHANNELS_LAST, ns);
        *ns = ln_on_threads(w, *ns);
        return status;
    }
    for (int k = 0; k < 2 && node->bodies[k] != NULL && status == LINNET_OK; ++k) {
        double sum = 0;
        node->bodies[k]->error = w->error;
        status = add_nodes(node->bodies[k], &sum);
        node->bodies[k]->error = NULL;
        if (sum > *ns) *ns = sum; /* either branch may run */
    }
    *ns *= (double)ln_body_trips(w, node);
    return status;
}
