/* device.c - devices of extensions: which takes which node, the transfers at the borders, running their steps.
 * The CPU is the last device; its steps go straight to kernels (run.c). */
#include "core/session.h"

#include "linnet_ext.h"

#include <string.h>

/* What an extension sees of a step. */
struct linnet_step {
    const ln_call *call;
    const char *name;
};

const char *linnet_step_op(const linnet_step *step) { return step->call->op->name; }
const char *linnet_step_name(const linnet_step *step) { return step->name; }
int linnet_step_input_count(const linnet_step *step) { return step->call->n_inputs; }
int linnet_step_output_count(const linnet_step *step) { return step->call->n_outputs; }

linnet_status linnet_step_input(const linnet_step *step, int i, linnet_tensor_info *out) {
    if (i < 0 || i >= step->call->n_inputs || out == NULL) return LINNET_INVALID_ARGUMENT;
    ln_tensor_info(&step->call->inputs[i], "", out);
    return LINNET_OK;
}

linnet_status linnet_step_output(const linnet_step *step, int i, linnet_tensor_info *out) {
    if (i < 0 || i >= step->call->n_outputs || out == NULL) return LINNET_INVALID_ARGUMENT;
    ln_tensor_info(&step->call->outputs[i], "", out);
    return LINNET_OK;
}

static const ln_attribute *find_attribute(const linnet_step *step, const char *name) {
    const ln_op *op = step->call->op;
    for (int i = 0; name != NULL && i < op->n_attributes; ++i)
        if (strcmp(ln_names + ln_op_attribute(op, i)->name, name) == 0) return ln_op_attribute(op, i);
    return NULL;
}

const int64_t *linnet_step_integers(const linnet_step *step, const char *attribute, int *count) {
    const ln_attribute *a = find_attribute(step, attribute);
    if (a == NULL || count == NULL || a->type == LN_ATTRIBUTE_FLOAT || a->type == LN_ATTRIBUTE_FLOATS) return NULL;
    const char *at = (const char *)step->call->attributes + a->offset;
    if (a->type != LN_ATTRIBUTE_INTS) {
        *count = 1;
        return (const int64_t *)at;
    }
    *count = (int)((const ln_ints *)at)->n;
    return ((const ln_ints *)at)->v;
}

const double *linnet_step_floats(const linnet_step *step, const char *attribute, int *count) {
    const ln_attribute *a = find_attribute(step, attribute);
    if (a == NULL || count == NULL || (a->type != LN_ATTRIBUTE_FLOAT && a->type != LN_ATTRIBUTE_FLOATS)) return NULL;
    const char *at = (const char *)step->call->attributes + a->offset;
    if (a->type == LN_ATTRIBUTE_FLOAT) {
        *count = 1;
        return (const double *)at;
    }
    *count = (int)((const ln_floats *)at)->n;
    return ((const ln_floats *)at)->v;
}

/* ---- planning: placement and transfers ------------------------------------------------------------------------ */

typedef struct placement {
    ln_work *w;
    int32_t n;       /* values before the pass */
    int32_t *copies; /* n * (devices + 1): the value's copy on a device, -1 none */
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

/* The value as it can be read on `device`. */
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
        if (v->host != NULL) { /* a constant is uploaded once, when the session is made */
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
        int32_t made; /* what leaves the plan lies on the host */
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

/* ---- sessions --------------------------------------------------------------------------------------------------- */

static linnet_status device_failed(const linnet_device *device, const char *doing, const char *tensor,
                                   linnet_error *error) {
    ln_fail(error, LINNET_DEVICE_FAILED, "device %s failed to %s", device->name, doing);
    ln_at_tensor(error, tensor);
    return ln_hint(error, "plan without this device to run on the CPU");
}

linnet_status ln_device_prepare(linnet_session *s, ln_instance *instance, linnet_error *error) {
    const ln_program *p = instance->program;
    for (int32_t d = 1; d <= p->n_devices; ++d) {
        const linnet_device *device = s->plan->devices[d - 1];
        const ln_device_memory *m = &p->devices[d];
        if (m->arena > 0 && !(instance->device_arenas[d] = device->allocate(device->context, m->arena)))
            return device_failed(device, "allocate its arena", "", error);
        if (m->residents_bytes == 0) continue;
        if (!(instance->residents[d] = device->allocate(device->context, m->residents_bytes)))
            return device_failed(device, "allocate its constants", "", error);
        for (int32_t i = 0; i < m->n_residents; ++i)
            if (device->upload(device->context, (char *)instance->residents[d] + m->residents[i].offset,
                               m->residents[i].host, m->residents[i].size) != 0)
                return device_failed(device, "upload a constant", "", error);
    }
    for (int32_t i = 0; i < p->n_steps; ++i) {
        const ln_step *step = &p->steps[i];
        if (step->kind != LN_STEP_DEVICE) continue;
        const linnet_device *device = s->plan->devices[step->device - 1];
        const linnet_step seen = {.call = &step->call, .name = step->name};
        instance->steps[i].step = step; /* from here on it must be unprepared */
        if (device->prepare != NULL && device->prepare(device->context, &seen, &instance->steps[i].state) != 0)
            return device_failed(device, "prepare a step", step->name, error);
    }
    return LINNET_OK;
}

void ln_device_release(linnet_session *s, ln_instance *instance) {
    const ln_program *p = instance->program;
    if (p->n_devices == 0 || instance->steps == NULL) return;
    for (int32_t i = 0; i < p->n_steps; ++i) {
        const ln_bound *bound = &instance->steps[i];
        if (bound->step == NULL || bound->step->kind != LN_STEP_DEVICE || bound->state == NULL) continue;
        const linnet_device *device = s->plan->devices[bound->step->device - 1];
        if (device->unprepare != NULL) device->unprepare(device->context, bound->state);
    }
    for (int32_t d = 1; d <= p->n_devices; ++d) {
        const linnet_device *device = s->plan->devices[d - 1];
        if (instance->device_arenas[d] != NULL)
            device->release(device->context, instance->device_arenas[d], p->devices[d].arena);
        if (instance->residents[d] != NULL)
            device->release(device->context, instance->residents[d], p->devices[d].residents_bytes);
    }
}

linnet_status ln_device_step(linnet_session *s, const ln_bound *bound, linnet_error *error) {
    const ln_step *step = bound->step;
    const linnet_device *device = s->plan->devices[step->device - 1];
    const ln_buffers *b = &bound->buffers;
    const linnet_step seen = {.call = &step->call, .name = step->name};
    int failed = 0;
    switch (step->kind) {
    case LN_STEP_UPLOAD: failed = device->upload(device->context, b->outputs[0], b->inputs[0], step->bytes); break;
    case LN_STEP_DOWNLOAD:
        if (device->synchronise != NULL) failed = device->synchronise(device->context);
        if (!failed) failed = device->download(device->context, b->outputs[0], b->inputs[0], step->bytes);
        break;
    default: failed = device->run(device->context, &seen, bound->state, b->inputs, b->outputs); break;
    }
    if (!failed) return LINNET_OK;
    return device_failed(device,
                         step->kind == LN_STEP_UPLOAD     ? "upload"
                         : step->kind == LN_STEP_DOWNLOAD ? "download"
                                                          : "run",
                         step->name, error);
}
