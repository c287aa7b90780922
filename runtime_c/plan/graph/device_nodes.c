/* device_nodes.c - nodes as devices see them: the places that hints name, the bytes of values, the description of a
 * node to its device, and the time that steps and transfers take by the device's own model. */
#include "plan/graph/device_nodes.h"

#include "plan/graph/call.h"
#include "plan/graph/work.h"

#include <string.h>

static bool matches(const char *pattern, const char *text) {
    for (; *pattern != '*'; ++pattern, ++text) {
        if (*pattern != *text) return false;
        if (*text == 0) return true;
    }
    while (*pattern == '*') ++pattern;
    for (; *text != 0; ++text)
        if (matches(pattern, text)) return true;
    return *pattern == 0;
}

/* plan_create.c has checked the names of the devices. */
int32_t ln_hinted_place(const ln_work *w, const ln_work_node *node) {
    for (int32_t h = 0; h < w->settings.n_hints; ++h) {
        if (!matches(w->settings.hints[h].node, node->name)) continue;
        for (int32_t d = 0; d < w->settings.n_devices; ++d)
            if (strcmp(w->settings.devices[d].is.name, w->settings.hints[h].device) == 0) return d + 1;
        return LN_CPU;
    }
    return -1;
}

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

linnet_status ln_device_step_of(ln_work *w, const ln_work_node *node, uint8_t place, ln_pool *pool, linnet_step *out) {
    const linnet_status status = ln_node_call(w, node, pool, &out->call);
    if (status != LINNET_OK) return status;
    const int n_in = ln_slots(node), n = n_in + node->n_outputs;
    ln_step_value *values = ln_pool_array(pool, n, sizeof *values);
    if (values == NULL) return ln_work_no_memory(w);
    for (int k = 0; k < n; ++k) {
        const int32_t at = k < n_in ? node->inputs[k] : node->outputs[k - n_in];
        if (at < 0) continue;
        const ln_work_value *v = ln_value_at(w, at);
        values[k].name = v->name;
        values[k].value = at;
        values[k].readers = w->offload.readers != NULL ? w->offload.readers[at] : 0;
        if (v->variable >= 0) values[k].variable = w->model->variables[v->variable].name;
        values[k].token = v->device == place ? ln_token_of(w, at) : 0;
        values[k].device = &ln_device_at(w, place)->is;
        ln_bytes(&v->tensor, &values[k].bytes);
        if (values[k].token != 0) values[k].bytes = ln_device_bytes(w, at) - ln_device_at(w, place)->limits.padding;
    }
    out->name = node->name;
    out->number = node->number;
    out->values = values;
    return LINNET_OK;
}
