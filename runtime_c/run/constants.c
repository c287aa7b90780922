/* constants.c - constants on devices. Instances of one model share a constant if they have it on the same device,
 * whatever their plans and shapes. The model has a list of the instances, and the last one that has a constant releases
 * it.
 *
 * The model is locked while constants are allocated and written. Whoever finds a constant in the list can therefore use
 * it, because its content has arrived. */
#include "run/constants.h"

#include "base/platform_locks.h"

#include <string.h>

/* Returns the buffer of the constant if an instance of the model has it on the device; else NULL. */
static const linnet_handle *find(const linnet_model *model, const linnet_device *device, const ln_device_weight *r) {
    for (const ln_instance *other = model->on_devices; other != NULL; other = other->also)
        for (int32_t p = 1; p <= other->program->n_devices; ++p) {
            const ln_device_memory *m = &other->program->devices[p];
            for (int32_t i = m->device == device ? m->first_constant : m->n_weights; i < m->n_weights; ++i) {
                const int32_t at = m->first_chunk + m->weights[i].chunk;
                if (other->on_devices.has_chunk[at] && memcmp(m->weights[i].key, r->key, sizeof r->key) == 0)
                    return &other->on_devices.chunks[at];
            }
        }
    return NULL;
}

static linnet_status write_mapped(const ln_device *device, const ln_device_weight *r, linnet_handle buffer,
                                  linnet_error *error) {
    void *host;
    int code = device->is.map(device->is.context, buffer, r->key[3], &host);
    if (code != 0) return ln_device_failed(device, code, "map a buffer", "", error);
    memcpy(host, r->host, (size_t)r->key[2]);
    code = device->is.unmap(device->is.context, buffer, host);
    return code != 0 ? ln_device_failed(device, code, "unmap a buffer", "", error) : LINNET_OK;
}

static linnet_status write_constant(const ln_device *device, ln_queue *queue, const ln_device_weight *r,
                                    linnet_handle buffer, linnet_error *error) {
    if (device->limits.host_visible) return write_mapped(device, r, buffer, error);
    linnet_device_tensor tensor = {.struct_size = sizeof tensor};
    const linnet_span to = {.buffer = buffer, .bytes = r->key[2]};
    ln_device_tensor(&r->tensor, &(ln_step_value){.name = r->name, .bytes = to.bytes}, &tensor);
    queue->busy = true;
    const int code = device->is.upload(device->is.context, queue->queue, &tensor, &to, r->host);
    return code != 0 ? ln_device_failed(device, code, "upload a constant", r->name, error) : LINNET_OK;
}

static linnet_status take(const ln_device *device, ln_queue *queue, ln_instance *instance, const ln_device_memory *m,
                          linnet_error *error) {
    ln_device_objects *d = &instance->on_devices;
    linnet_status status = LINNET_OK;
    for (int32_t i = m->first_constant; i < m->n_weights && status == LINNET_OK; ++i) {
        const ln_device_weight *r = &m->weights[i];
        const int32_t at = m->first_chunk + r->chunk;
        const linnet_handle *shared = find(instance->program->model, m->device, r);
        if (shared != NULL)
            d->chunks[at] = *shared;
        else
            status = ln_device_allocate(device, r->key[3], &d->chunks[at], error);
        d->has_chunk[at] = status == LINNET_OK;
        if (shared == NULL && status == LINNET_OK) status = write_constant(device, queue, r, d->chunks[at], error);
    }
    if (!queue->busy) return status;
    const int code = device->is.finish(device->is.context, queue->queue); /* after an error too */
    queue->busy = false;
    return code != 0 && status == LINNET_OK ? ln_device_failed(device, code, "write its constants", "", error) : status;
}

/* Takes the instance off the model's list, and releases its constants that no other instance has. Called under the
 * model's lock. */
static void give(ln_instance *instance) {
    const ln_program *p = instance->program;
    ln_instance **at = &p->model->on_devices;
    while (*at != NULL && *at != instance) at = &(*at)->also;
    if (*at == NULL) return;
    for (int32_t d = 1; d <= p->n_devices; ++d) {
        const ln_device_memory *m = &p->devices[d];
        for (int32_t i = m->first_constant; i < m->n_weights; ++i) {
            const ln_device_weight *r = &m->weights[i];
            const int32_t chunk = m->first_chunk + r->chunk;
            bool *has = &instance->on_devices.has_chunk[chunk];
            if (!*has) continue;
            *has = false;
            if (find(p->model, m->device, r) == NULL)
                m->device->release(m->device->context, instance->on_devices.chunks[chunk], r->key[3]);
        }
    }
    *at = instance->also;
}

linnet_status ln_constants_take(linnet_session *s, ln_instance *instance, linnet_error *error) {
    const ln_program *p = instance->program;
    linnet_status status = LINNET_OK;
    ln_lock_exclusive(&p->model->lock);
    instance->also = p->model->on_devices;
    p->model->on_devices = instance;
    for (int32_t d = 1; d <= p->n_devices && status == LINNET_OK; ++d)
        status = take(&s->plan->devices[d - 1], &s->queues[d - 1], instance, &p->devices[d], error);
    if (status != LINNET_OK) give(instance); /* before another instance finds a constant that was never written */
    ln_unlock(&p->model->lock);
    return status;
}

void ln_constants_give(ln_instance *instance) {
    linnet_model *model = instance->program->model;
    ln_lock_exclusive(&model->lock);
    give(instance);
    ln_unlock(&model->lock);
}
