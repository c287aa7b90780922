/* kept_variables.c - values of variables that a device keeps where they survive the device. Each device keeps the new
 * values of a run under the run's number before any variable changes, and still has those of the run before. So whether
 * the run counts is decided here, and a device that dies at any moment has what was decided when it comes back. */
#include "run/kept_variables.h"

#include "model/store.h"
#include "model/store_holders.h"

static const ln_device *device_of(const linnet_session *s, uint8_t place) { return &s->plan->devices[place - 1]; }

static int32_t variable_of(const ln_program *p, const ln_move *move) {
    return p->devices[move->from.device].weights[move->weight].variable;
}

static bool keeps(const linnet_session *s, const ln_program *p, const ln_move *move) {
    return device_of(s, move->from.device)->is.keep != NULL && move->transfer >= 0 &&
           ln_store_may_hold(s->store, variable_of(p, move));
}

/* Submits what one device shall keep, and lets it begin. *last is the last of these variables; NULL: there are none. */
static int submit(linnet_session *s, const ln_instance *instance, uint8_t place, const char **last) {
    const ln_program *p = instance->program;
    const linnet_device *d = &device_of(s, place)->is;
    const ln_queue *q = &s->queues[place - 1];
    int code = 0;
    *last = NULL;
    for (int32_t i = 0; i < p->n_moves && code == 0; ++i) {
        const ln_move *move = &p->moves[i];
        if (move->from.device != place || !keeps(s, p, move)) continue;
        const int32_t variable = variable_of(p, move);
        const linnet_span from = {.buffer =
                                      instance->on_devices.chunks[p->devices[place].first_chunk + move->from.index],
                                  .offset = move->from.offset,
                                  .bytes = move->bytes};
        *last = p->model->variables[variable].name;
        code = d->keep(d->context, q->queue, *last, 1 + ln_store_version(s->store, variable), &from);
    }
    if (*last != NULL && code == 0) code = d->record(d->context, q->queue, q->event);
    if (*last != NULL && code == 0 && d->flush != NULL) code = d->flush(d->context, q->queue);
    return code;
}

/* Waits until one device has kept everything. */
static int wait_for(linnet_session *s, const ln_instance *instance, uint8_t place, const char **last) {
    const ln_program *p = instance->program;
    const linnet_device *d = &device_of(s, place)->is;
    *last = NULL;
    for (int32_t i = 0; i < p->n_moves; ++i)
        if (p->moves[i].from.device == place && keeps(s, p, &p->moves[i]))
            *last = p->model->variables[variable_of(p, &p->moves[i])].name;
    return *last != NULL ? d->wait(d->context, s->queues[place - 1].event) : 0;
}

linnet_status ln_keep_new_values(linnet_session *s, ln_instance *instance, linnet_error *error) {
    const uint8_t places = (uint8_t)instance->program->n_devices;
    for (int waits = 0; waits < 2; ++waits) /* devices work side by side */
        for (uint8_t place = 1; place <= places; ++place) {
            const char *last;
            const int code = (waits ? wait_for : submit)(s, instance, place, &last);
            if (code != 0)
                return ln_device_failed(device_of(s, place), code, "keep the new value of a variable", last, error);
        }
    return LINNET_OK;
}

/* Brings a value from what the device has kept. `to` has all of its bytes. */
static int recall(const linnet_device *d, const char *variable, uint64_t number, void *to, uint64_t bytes) {
    linnet_handle queue, buffer;
    linnet_device_tensor tensor = {.struct_size = sizeof tensor, .name = variable, .dtype = LINNET_U8, .bits = 8};
    tensor.rank = 1, tensor.shape[0] = (int64_t)bytes, tensor.strides[0] = 1, tensor.bytes = bytes;
    tensor.quant_axis = -1;
    int code = d->open(d->context, &queue);
    if (code != 0) return code;
    code = d->allocate(d->context, bytes, &buffer);
    if (code == 0) {
        const linnet_span span = {.buffer = buffer, .bytes = bytes};
        code = d->recall(d->context, queue, variable, number, &span);
        if (code == 0) code = d->download(d->context, queue, &tensor, to, &span);
        const int finished = d->finish(d->context, queue); /* after a failure too */
        if (code == 0) code = finished;
        d->release(d->context, buffer, bytes);
    }
    d->close(d->context, queue);
    return code;
}

static linnet_status fetch(linnet_store *store, int32_t i, const linnet_device *device, linnet_error *error) {
    const ln_variable *v = &ln_store_model(store)->variables[i];
    const int code = recall(device, v->name, ln_store_version(store, i), ln_store_data(store, i), v->bytes);
    const ln_device view = {.is = *device};
    if (code == 0) return LINNET_OK;
    ln_device_failed(&view, code, "bring back the value of a variable that it had kept", v->name, error);
    return ln_hint(error, "wait for the device to come back, load a checkpoint, or write the variable"),
           LINNET_DEVICE_FAILED;
}

bool ln_lose_or_keep(linnet_session *s, uint8_t place, int32_t variable) {
    const ln_device *device = device_of(s, place);
    const bool kept = device->is.recall != NULL && ln_store_hold_kept(s->store, variable, device->origin, fetch);
    if (!kept) ln_store_lose(s->store, variable);
    return kept;
}
