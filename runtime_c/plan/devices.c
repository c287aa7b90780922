/* devices.c - the pass that assigns nodes to devices and inserts transfers between them.
 * The CPU is asked last; it takes every node. */
#include "kernel/step.h"
#include "plan/program.h"

#include "linnet_ext.h"

typedef struct placement {
    ln_work *w;
    int32_t n;       /* values before the pass */
    int32_t *copies; /* n * (devices + 1): the value's copy on a device; -1: none */
} placement;

static linnet_status choose_device(ln_work *w, ln_work_node *node) {
    if (ln_is_assign(node) || node->bodies[0] != NULL || (node->op->flags & LN_OP_DATA_DEPENDENT)) return LINNET_OK;
    ln_call call;
    const linnet_status status = ln_lower_call(w, node, &w->pool, &call);
    if (status != LINNET_OK) return status;
    const linnet_step step = {.call = &call, .name = node->name};
    for (int32_t d = 0; d < w->n_devices; ++d)
        if (w->devices[d]->supports(w->devices[d]->context, &step)) {
            node->device = (uint8_t)(d + 1);
            break;
        }
    return LINNET_OK;
}

static linnet_status transfer(ln_work *w, int32_t from, int32_t to, int device) {
    ln_work_node *node = ln_work_new_node(w, NULL, NULL, ln_value_at(w, from)->name, -1, 1, 1);
    if (node == NULL) return ln_work_no_memory(w);
    node->inputs[0] = from;
    node->outputs[0] = to;
    node->device = (uint8_t)device;
    node->state = LN_NODE_READY;
    return ln_work_append(w, node);
}

static linnet_status twin(ln_work *w, int32_t value, int device, int32_t *out) {
    const ln_tensor like = ln_value_at(w, value)->tensor;
    *out = ln_work_add_value(w, ln_value_at(w, value)->name, &like);
    if (*out < 0) return ln_work_no_memory(w);
    ln_value_at(w, *out)->known = true;
    ln_value_at(w, *out)->device = (uint8_t)device;
    return LINNET_OK;
}

/* Makes the value available on `device`. */
static linnet_status bring(placement *p, int32_t *value, int device) {
    ln_work *w = p->w;
    const int32_t from = *value;
    const int home = ln_value_at(w, from)->device;
    linnet_status status;
    if (home == device) return LINNET_OK;
    int32_t *slot = &p->copies[(size_t)from * (size_t)(w->n_devices + 1) + (size_t)device];
    if (*slot < 0) {
        int32_t source = from;
        if (home != 0 && device != 0 && (status = bring(p, &source, 0)) != LINNET_OK) return status;
        if ((status = twin(w, from, device, slot)) != LINNET_OK) return status;
        const ln_work_value *v = ln_value_at(w, from);
        if (v->host != NULL) { /* a constant is uploaded once, when the session is created */
            ln_value_at(w, *slot)->host = v->host;
            ln_value_at(w, *slot)->tensor.data = v->tensor.data;
        } else if ((status = transfer(w, source, *slot, device)) != LINNET_OK) {
            return status;
        }
    }
    *value = *slot;
    return LINNET_OK;
}

static linnet_status place_node(placement *p, ln_work_node *node) {
    ln_work *w = p->w;
    linnet_status status;
    for (int k = 0; k < node->n_inputs; ++k)
        if (node->inputs[k] >= 0 && (status = bring(p, &node->inputs[k], node->device)) != LINNET_OK) return status;
    if ((status = ln_work_append(w, node)) != LINNET_OK || node->device == 0) return status;
    for (int o = 0; o < node->n_outputs; ++o) {
        const int32_t value = node->outputs[o];
        if (value < 0) continue;
        if (!ln_value_at(w, value)->fetched && !ln_value_at(w, value)->exported) {
            ln_value_at(w, value)->device = node->device;
            continue;
        }
        int32_t made; /* results that leave the plan must be on the host */
        if ((status = twin(w, value, node->device, &made)) != LINNET_OK) return status;
        node->outputs[o] = made;
        p->copies[(size_t)value * (size_t)(w->n_devices + 1) + node->device] = made;
        if ((status = transfer(w, made, value, 0)) != LINNET_OK) return status;
    }
    return LINNET_OK;
}

linnet_status ln_pass_devices(ln_work *w) {
    if (w->n_devices == 0) return LINNET_OK;
    placement p = {.w = w, .n = w->values.count};
    const int32_t n_nodes = w->nodes.count;
    const int64_t slots = (int64_t)p.n * (w->n_devices + 1);
    p.copies = ln_pool_array(&w->pool, slots, sizeof *p.copies);
    ln_work_node **order = ln_pool_array(&w->pool, n_nodes, sizeof *order);
    if (p.copies == NULL || order == NULL) return ln_work_no_memory(w);
    for (int64_t i = 0; i < slots; ++i) p.copies[i] = -1;
    for (int32_t i = 0; i < n_nodes; ++i) order[i] = ln_node_at(w, i);
    w->nodes.count = 0;
    for (int32_t i = 0; i < n_nodes; ++i) {
        linnet_status status = order[i]->state == LN_NODE_READY ? choose_device(w, order[i]) : LINNET_OK;
        if (status == LINNET_OK)
            status = order[i]->state == LN_NODE_READY ? place_node(&p, order[i]) : ln_work_append(w, order[i]);
        if (status != LINNET_OK) return status;
    }
    return LINNET_OK;
}
