/* device_nodes.c - nodes as devices see them: the bytes of values, the description of a node to its device with the
 * bodies of a loop or a branch, and the time that steps and transfers take by the device's own model. */
#include "plan/graph/device_nodes.h"

#include "plan/graph/body_nodes.h"
#include "plan/graph/call.h"
#include "plan/graph/work.h"

#include <string.h>

double ln_device_steps_ns(const ln_device *device, const linnet_step *steps, int32_t count,
                          const linnet_step **scratch) {
    const linnet_device *d = &device->is;
    double ns = 0;
    for (int32_t i = 0; i < count; ++i) scratch[i] = &steps[i];
    for (int32_t first = 0; first < count;) {
        linnet_offer offer = {.struct_size = sizeof offer, .count = 1};
        const double alone = d->cost(d->context, scratch[first]);
        if (alone > 0) offer.cost_ns = alone;
        if (d->offer != NULL && d->offer(d->context, scratch + first, (int)(count - first), &offer) != 0) return 0;
        if (offer.cost_ns > 0) ns += offer.cost_ns;
        first += offer.count > 0 && offer.count <= count - first ? offer.count : 1;
    }
    return ns;
}

double ln_transfer_ns(const ln_device *device, uint64_t bytes) {
    const double rate = (double)device->limits.transfer_rate;
    return (double)device->limits.transfer_ns + (rate > 0 ? 1000 * (double)bytes / rate : 0);
}

uint64_t ln_device_bytes(const ln_work *w, int32_t of) {
    const ln_work_value *v = ln_value_at(w, of);
    const uint32_t token = ln_token_of(w, of);
    uint64_t bytes = 0;
    if (!ln_bytes(&v->tensor, &bytes)) return 0;
    if (ln_on_cpu(v->device)) return bytes;
    const ln_device *d = ln_device_at(w, v->device);
    if (token != 0) {
        linnet_device_tensor t = {.struct_size = sizeof t};
        const ln_step_value value = {.name = v->name, .token = token, .device = &d->is, .bytes = bytes};
        ln_device_tensor(&v->tensor, &value, &t);
        bytes = t.axes.block >= 0 ? t.bytes : d->is.layout_bytes(d->is.context, &t, token);
    }
    return bytes + d->limits.padding;
}

static void describe_value(const ln_work *w, int32_t at, uint8_t place, ln_step_value *out) {
    const ln_work_value *v = ln_value_at(w, at);
    out->name = v->name;
    out->value = at;
    out->readers = w->offload.readers != NULL ? w->offload.readers[at] : 0;
    if (v->variable >= 0) out->variable = w->model->variables[v->variable].name;
    out->token = v->device == place ? ln_token_of(w, at) : 0;
    out->device = &ln_device_at(w, place)->is;
    ln_bytes(&v->tensor, &out->bytes);
    if (out->token != 0) out->bytes = ln_device_bytes(w, at) - ln_device_at(w, place)->limits.padding;
}

/* Describes body k of the node, which has inputs and outputs instead of operands. */
static linnet_status describe_body(ln_work *w, const ln_work_node *node, int k, uint8_t place, ln_pool *pool,
                                   const linnet_body **out) {
    ln_work *b = node->bodies[k];
    const bool loop = node->bodies[1] == NULL;
    const ln_function *f = ln_body_function(w, node, k);
    linnet_body *body = ln_pool_alloc(pool, sizeof *body);
    linnet_step *steps = ln_pool_array(pool, b->nodes.count, sizeof *steps);
    ln_tensor *tensors = ln_pool_array(pool, (int64_t)f->n_inputs + f->n_outputs, sizeof *tensors);
    ln_step_value *values = ln_pool_array(pool, (int64_t)f->n_inputs + f->n_outputs, sizeof *values);
    if (pool->failed) return ln_work_no_memory(w);
    *out = body;
    *body = (linnet_body){.steps = steps, .n_inputs = f->n_inputs, .n_outputs = f->n_outputs, .tensors = tensors};
    body->values = values;
    for (int32_t i = 0; i < f->n_inputs + f->n_outputs; ++i) {
        const int32_t o = i - f->n_inputs;
        int32_t at = o < 0 ? f->inputs[i] : b->fetches[o];
        if (at < 0 && loop && o <= ln_carried(node)) at = f->inputs[o + 1]; /* it stays, or nothing asks for it */
        if (at < 0) continue;
        tensors[i] = ln_value_at(b, at)->tensor;
        describe_value(b, at, place, &values[i]);
    }
    b->error = w->error;
    linnet_status status = LINNET_OK;
    for (int32_t i = 0; i < b->nodes.count && status == LINNET_OK; ++i)
        if (ln_node_at(b, i)->state == LN_NODE_READY)
            status = ln_device_step_of(b, ln_node_at(b, i), place, pool, &steps[body->n_steps++]);
    b->error = NULL;
    return status;
}

linnet_status ln_device_step_of(ln_work *w, const ln_work_node *node, uint8_t place, ln_pool *pool, linnet_step *out) {
    linnet_status status = ln_node_call(w, node, pool, &out->call);
    if (status != LINNET_OK) return status;
    const int n_in = ln_slots(node), n = n_in + node->n_outputs;
    ln_step_value *values = ln_pool_array(pool, n, sizeof *values);
    if (values == NULL) return ln_work_no_memory(w);
    for (int k = 0; k < n; ++k) {
        const int32_t at = k < n_in ? node->inputs[k] : node->outputs[k - n_in];
        if (at >= 0) describe_value(w, at, place, &values[k]);
    }
    out->name = node->name;
    out->number = node->number;
    out->values = values;
    for (int k = 0; k < 2; ++k) {
        out->bodies[k] = NULL;
        if (node->bodies[k] != NULL) status = describe_body(w, node, k, place, pool, &out->bodies[k]);
        if (status != LINNET_OK) return status;
    }
    return status;
}
