/* transfers.c - inserts the transfers between places. places.c has decided where nodes run; this pass brings the
 * operands of each node to its place. */
#include "plan/graph/views.h"
#include "plan/passes/passes.h"

#include <string.h>

typedef struct transfers {
    ln_work *w;
    int32_t *copies; /* per value and place: the value's copy there; -1: none */
    int32_t only;    /* the place of all nodes that touch inputs and outputs of the graph; -1: there are several */
} transfers;

static int32_t *copy_at(const transfers *p, int32_t value, uint8_t place) {
    return &p->copies[(size_t)value * (size_t)(p->w->settings.n_devices + 1) + place];
}

/* Adds a node for a transfer, which is submitted to the queue of `device`. */
static linnet_status transfer(ln_work *w, int32_t from, int32_t to, uint8_t device) {
    ln_work_node *node = ln_work_new_node(w, NULL, NULL, ln_value_at(w, from)->name, -1, 1, 1);
    if (node == NULL) return ln_work_no_memory(w);
    node->inputs[0] = from;
    node->outputs[0] = to;
    node->device = device;
    node->state = LN_NODE_READY;
    return ln_work_append(w, node);
}

static linnet_status twin(ln_work *w, int32_t value, uint8_t place, int32_t *out) {
    if ((*out = ln_work_twin(w, value)) < 0) return ln_work_no_memory(w);
    ln_value_at(w, *out)->device = place;
    return LINNET_OK;
}

static bool reaches(const ln_work *w, uint8_t to, uint8_t from) {
    const linnet_device *d = &ln_device_at(w, to)->is, *other = &ln_device_at(w, from)->is;
    return d->reaches != NULL && d->copy != NULL && d->follow != NULL && other->follow != NULL &&
           d->reaches(d->context, other);
}

/* Makes the value available at `place`. */
static linnet_status bring(transfers *p, int32_t *value, uint8_t place) {
    ln_work *w = p->w;
    const int32_t from = *value;
    const uint8_t home = ln_value_at(w, from)->device;
    linnet_status status;
    if (home == place) return LINNET_OK;
    int32_t *slot = copy_at(p, from, place);
    if (*slot < 0) {
        int32_t source = from, made;
        if (!ln_on_cpu(home) && !ln_on_cpu(place) && !reaches(w, place, home) &&
            (status = bring(p, &source, LN_CPU)) != LINNET_OK)
            return status;
        if ((status = twin(w, from, place, &made)) != LINNET_OK) return status;
        *slot = made;
        const ln_work_value *v = ln_value_at(w, from);
        /* The device keeps its copy of a variable between runs, with the version of the variable. */
        ln_value_at(w, made)->variable = ln_on_cpu(place) ? -1 : v->variable;
        if (v->host != NULL) { /* a constant is uploaded once, when the session is created */
            ln_value_at(w, made)->host = v->host;
            ln_value_at(w, made)->tensor.data = v->tensor.data;
        } else if ((status = transfer(w, source, made, ln_on_cpu(place) ? home : place)) != LINNET_OK) {
            return status;
        }
    }
    *value = *slot;
    return LINNET_OK;
}

/* Tells whether the device can use the memory of inputs and outputs. The memory of bodies and later segments begins at
 * multiples of 64 only. A device that must be told of the host's accesses has all of the memory or none, because the
 * host cannot touch a part of it in between. */
static bool shares(const transfers *p, const ln_work_node *node) {
    const ln_device *device = ln_device_at(p->w, node->device);
    return device->limits.shared && (device->is.host_release == NULL || p->only == node->device) &&
           (device->limits.import_alignment <= LN_ALIGNMENT || p->w->kind == LN_WORK_SIGNATURE);
}

/* Tells whether a device that shares memory with the host reads or writes the value in place: inputs and outputs of the
 * session. */
static bool shared_input(const transfers *p, const ln_work_node *node, int32_t value) {
    const ln_work *w = p->w;
    const ln_work_value *v = ln_value_at(w, value);
    return v->input >= 0 && !v->imported && v->host == NULL && shares(p, node) && !ln_is_family(node, LN_FAMILY_COPY);
}

static bool shared_output(const transfers *p, const ln_work_node *node, int32_t value) {
    const ln_work *w = p->w;
    const ln_work_value *v = ln_value_at(w, value);
    /* No copies, because the result of a copy may be a view, which lies in the memory of the operand. */
    return v->fetched && !v->exported && v->uses == 0 && shares(p, node) && !ln_is_family(node, LN_FAMILY_COPY);
}

static linnet_status give_operands(transfers *p, ln_work_node *node) {
    ln_work *w = p->w;
    linnet_status status;
    const uint8_t place = node->device;
    if (ln_is_assign(node) && !ln_on_cpu(ln_value_at(w, node->inputs[1])->device)) {
        ln_work_move *move = ln_list_add(w, &w->offload.moves, sizeof *move);
        if (move == NULL) return ln_work_no_memory(w);
        *move = (ln_work_move){.value = node->inputs[1], .variable = node->inputs[0]};
    }
    for (int k = ln_is_assign(node); k < node->n_inputs; ++k) {
        if (node->inputs[k] < 0 || (ln_on_device(node) && shared_input(p, node, node->inputs[k]))) continue;
        if ((status = bring(p, &node->inputs[k], place)) != LINNET_OK) return status;
    }
    if ((status = ln_work_append(w, node)) != LINNET_OK || !ln_on_device(node)) return status;
    for (int o = 0; o < node->n_outputs; ++o) {
        const int32_t value = node->outputs[o];
        if (value < 0 || shared_output(p, node, value)) continue;
        if (!ln_value_at(w, value)->fetched && !ln_value_at(w, value)->exported) {
            ln_value_at(w, value)->device = place;
            continue;
        }
        int32_t made; /* the result on the host: results that leave the plan must be there */
        if ((status = twin(w, value, place, &made)) != LINNET_OK) return status;
        node->outputs[o] = made;
        *copy_at(p, value, place) = made;
        if ((status = transfer(w, made, value, place)) != LINNET_OK) return status;
    }
    return LINNET_OK;
}

/* Tells whether the value is a view of a variable's memory on a device. */
static bool views_variable(const ln_work *w, int32_t value) {
    for (int32_t i = w->nodes.count - 1; i >= 0; --i) { /* an operand comes from a node before its reader */
        const ln_work_node *node = ln_node_at(w, i);
        if (node->state != LN_NODE_READY || !ln_on_device(node) || !ln_is_view(w, node)) continue;
        for (int o = 0; o < node->n_outputs; ++o)
            if (node->outputs[o] == value) value = node->inputs[0];
    }
    return ln_value_at(w, value)->variable >= 0;
}

static bool reads(const ln_work_node *node, int32_t value) {
    for (int k = 0; k < ln_slots(node); ++k)
        if (node->inputs[k] == value) return true;
    return false;
}

/* Tells whether the host needs the new value only for the store, and the plan reads the variable only from the device's
 * copy. The value may then stay on the device until somebody reads the store. */
static bool is_alone(const ln_work *w, const ln_work_move *move, int32_t copy) {
    const int32_t number = ln_value_at(w, move->variable)->variable;
    int32_t host = -1; /* the value on the host */
    if (w->kind != LN_WORK_SIGNATURE || w->waiting > 0 || ln_value_at(w, move->variable)->fetched) return false;
    for (int32_t i = 0; i < w->values.count; ++i)
        if (ln_value_at(w, i)->variable == number && i != move->variable && i != copy) return false;
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        const bool down = node->op == NULL && node->n_outputs == 1 && node->inputs[0] == move->value;
        if (node->state != LN_NODE_READY) continue;
        if (node->bodies[0] != NULL && ln_is_kernel(node)) return false; /* a body may read variables */
        if (down && ln_on_cpu(ln_value_at(w, node->outputs[0])->device)) {
            if (host >= 0) return false;
            host = node->outputs[0];
        }
        if (!ln_is_assign(node) && reads(node, move->variable) && (node->op != NULL || node->outputs[0] != copy))
            return false;
        if (ln_is_assign(node) && node->inputs[1] == move->variable) return false;
        if (host >= 0 && reads(node, host) && !(ln_is_assign(node) && node->inputs[0] == move->variable)) return false;
    }
    return host >= 0;
}

/* Keeps the moves (new values of variables that a device computes) whose variable the same device also reads. */
static void find_moves(transfers *p) {
    ln_work *w = p->w;
    ln_work_move *moves = w->offload.moves.items;
    int32_t kept = 0;
    for (int32_t i = 0; i < w->offload.moves.count; ++i) {
        ln_work_value *v = ln_value_at(w, moves[i].value);
        const int32_t copy = *copy_at(p, moves[i].variable, v->device);
        const linnet_device *d = &ln_device_at(w, v->device)->is;
        if (copy < 0 || d->copy == NULL || views_variable(w, moves[i].value)) continue;
        int32_t assigns = 0; /* of several assignments only the last one takes effect */
        for (int32_t k = 0; k < w->nodes.count; ++k)
            assigns += ln_is_assign(ln_node_at(w, k)) && ln_node_at(w, k)->inputs[0] == moves[i].variable;
        if (assigns != 1) continue;
        const int32_t variable = ln_value_at(w, copy)->variable;
        v->committed = true; /* it stays until the end of the run */
        const bool alone = is_alone(w, &moves[i], copy);
        moves[kept++] =
            (ln_work_move){.value = moves[i].value, .copy = copy, .variable = variable, .alone = alone, .step = -1};
    }
    w->offload.moves.count = kept;
}

/* Returns the place of all nodes that use inputs and outputs of the graph, if none of these is transferred; else -1. */
static int32_t place_of_ports(const ln_work *w, ln_work_node *const *order, int32_t n) {
    int32_t only = LN_CPU;
    for (int32_t i = 0; i < n; ++i) {
        const ln_work_node *node = order[i];
        bool touches = false, moved = ln_is_family(node, LN_FAMILY_COPY);
        for (int k = 0; k < ln_slots(node); ++k) {
            const ln_work_value *v = node->inputs[k] >= 0 ? ln_value_at(w, node->inputs[k]) : NULL;
            if (v == NULL || v->input < 0) continue;
            touches = true;
            moved |= v->imported;
        }
        for (int o = 0; o < node->n_outputs; ++o) {
            const ln_work_value *v = node->outputs[o] >= 0 ? ln_value_at(w, node->outputs[o]) : NULL;
            if (v == NULL || !v->fetched) continue;
            touches = true;
            moved |= v->exported || v->uses > 0;
        }
        if (!touches) continue;
        if (moved || node->state != LN_NODE_READY || !ln_on_device(node) || (only != LN_CPU && only != node->device))
            return -1;
        only = node->device;
    }
    return only;
}

linnet_status ln_pass_transfers(ln_work *w) {
    if (ln_device_count(w->settings.n_devices) == 0) return LINNET_OK;
    transfers p = {.w = w};
    int32_t n_nodes;
    const int64_t slots = (int64_t)w->values.count * (w->settings.n_devices + 1);
    p.copies = ln_pool_array(&w->pool, slots, sizeof *p.copies);
    ln_work_node **order = ln_work_take_nodes(w, &n_nodes);
    if (w->pool.failed) return ln_work_no_memory(w);
    for (int64_t i = 0; i < slots; ++i) p.copies[i] = -1;
    p.only = place_of_ports(w, order, n_nodes);
    for (int32_t i = 0; i < n_nodes; ++i) {
        const linnet_status status =
            order[i]->state == LN_NODE_READY ? give_operands(&p, order[i]) : ln_work_append(w, order[i]);
        if (status != LINNET_OK) return status;
    }
    find_moves(&p);
    return LINNET_OK;
}
