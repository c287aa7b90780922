/* device_variables.c - keeps new values of variables on the device that has computed them. A run copies each new value
 * over the device's copy of the variable, and does not download the value. The store gets the value when somebody reads
 * the variable (ln_store_fetch).
 *
 * A run that assigns variables has the store's lock to itself, and a fetch needs the lock too. So the session's queues
 * are used by one thread at a time, and nobody sees the store while a run changes values. */
#include "run/device_variables.h"

#include "model/store.h"
#include "model/store_holders.h"
#include "run/kept_variables.h"

#include <stddef.h>
#include <string.h>

static const ln_device *device_of(const linnet_session *s, uint8_t place) { return &s->plan->devices[place - 1]; }

static int32_t variable_of(const ln_program *p, const ln_move *move) {
    return p->devices[move->from.device].weights[move->weight].variable;
}

bool ln_leaves_out(const linnet_session *s, const ln_instance *instance, const ln_step *step) {
    return step->weight >= 0 &&
           ln_store_may_hold(s->store, instance->program->devices[step->device].weights[step->weight].variable);
}

static bool leaves_out(const linnet_session *s, const ln_program *p, const ln_move *move) {
    return move->transfer >= 0 && ln_store_may_hold(s->store, variable_of(p, move));
}

static bool holds(const linnet_session *s, const ln_move *move) {
    return move->transfer >= 0 && ln_store_holder(s->store, variable_of(&s->plan->program, move)) == &s->holder;
}

bool ln_holds(const linnet_session *s, int32_t variable) {
    return atomic_load(&((linnet_session *)(uintptr_t)s)->holder.count) > 0 &&
           ln_store_holder(s->store, variable) == &s->holder;
}

/* Returns the device's copy of the variable. */
static linnet_span copy_of(const ln_instance *instance, const ln_move *move) {
    const ln_device_memory *m = &instance->program->devices[move->from.device];
    const ln_device_weight *r = &m->weights[move->weight];
    return (linnet_span){
        .buffer = instance->on_devices.chunks[m->first_chunk + r->chunk], .offset = r->offset, .bytes = move->bytes};
}

static int complete(const linnet_session *s, uint8_t place) {
    const linnet_device *d = &device_of(s, place)->is;
    const ln_queue *q = &s->queues[place - 1];
    const int code = d->record(d->context, q->queue, q->event);
    return code == 0 ? d->wait(d->context, q->event) : code;
}

/* Submits the transfer of the value to the store. Only programs without later segments have such moves. */
static int submit(linnet_session *s, const ln_move *move, const linnet_span *from) {
    const linnet_device *d = &device_of(s, move->from.device)->is;
    void *to = ln_store_data(s->store, variable_of(&s->plan->program, move));
    return d->download(d->context, s->queues[move->from.device - 1].queue,
                       &s->root.on_devices.transfers[move->transfer].tensor, to, from);
}

static linnet_status failed(const linnet_session *s, const ln_move *move, int code, linnet_error *error) {
    const ln_device *device = device_of(s, move->from.device);
    const ln_device_memory *m = &s->plan->program.devices[move->from.device];
    /* A second failure is ignored. The error reports `code`. */
    (void)device->is.finish(device->is.context, s->queues[move->from.device - 1].queue);
    return ln_device_failed(device, code, "store the new value of a variable", m->weights[move->weight].name, error);
}

/* Fetches the values that one device has. They count as fetched together or not at all. */
static linnet_status fetch_from(linnet_session *s, uint8_t place, int32_t variable, linnet_error *error) {
    const ln_program *p = &s->plan->program;
    const ln_move *last = NULL;
    for (int32_t i = 0; i < p->n_moves; ++i) {
        const ln_move *move = &p->moves[i];
        if (move->from.device != place || !holds(s, move)) continue;
        if (variable >= 0 && variable_of(p, move) != variable) continue;
        const linnet_span from = copy_of(&s->root, move);
        const int code = submit(s, move, &from);
        if (code != 0) return failed(s, move, code, error);
        last = move;
    }
    const int code = last != NULL ? complete(s, place) : 0;
    if (code != 0) return failed(s, last, code, error);
    for (int32_t i = 0; last != NULL && i < p->n_moves; ++i) {
        const ln_move *move = &p->moves[i];
        if (move->from.device == place && holds(s, move) && (variable < 0 || variable_of(p, move) == variable))
            ln_store_release(s->store, variable_of(p, move));
    }
    return LINNET_OK;
}

static linnet_status fetch(ln_holder *holder, int32_t variable, linnet_error *error) {
    linnet_session *s = (linnet_session *)(void *)((char *)holder - offsetof(linnet_session, holder));
    linnet_status status = LINNET_OK;
    for (uint8_t place = 1; place <= s->plan->n_devices && status == LINNET_OK; ++place)
        status = fetch_from(s, place, variable, error);
    return status;
}

/* Copies a part of the value. A device's own layout has no parts that the host could read, so such a value is fetched.
 */
static linnet_status read_part(ln_holder *holder, int32_t variable, uint64_t offset, size_t bytes, void *to,
                               linnet_error *error) {
    linnet_session *s = (linnet_session *)(void *)((char *)holder - offsetof(linnet_session, holder));
    const ln_program *p = &s->plan->program;
    const ln_move *move = p->moves;
    while (!holds(s, move) || variable_of(p, move) != variable) ++move;
    const linnet_device *d = &device_of(s, move->from.device)->is;
    linnet_device_tensor part = s->root.on_devices.transfers[move->transfer].tensor;
    linnet_span from = copy_of(&s->root, move);
    if (part.layout != 0) {
        const linnet_status status = fetch(holder, variable, error);
        if (status == LINNET_OK) memcpy(to, (const char *)ln_store_data(s->store, variable) + offset, bytes);
        return status;
    }
    from.offset += offset;
    from.bytes = part.bytes = bytes;
    part.dtype = LINNET_U8, part.bits = 8;
    part.rank = 1, part.shape[0] = (int64_t)bytes, part.strides[0] = 1;
    int code = d->download(d->context, s->queues[move->from.device - 1].queue, &part, to, &from);
    if (code == 0) code = complete(s, move->from.device);
    return code == 0 ? LINNET_OK : failed(s, move, code, error);
}

void ln_device_variables_prepare(linnet_session *s) {
    const ln_program *p = &s->plan->program;
    s->holder.fetch = fetch;
    s->holder.read = read_part;
    for (int32_t i = 0; i < p->n_moves; ++i) s->defers_downloads |= p->moves[i].transfer >= 0;
    if (s->defers_downloads) ln_store_add_possible_holders(s->store, 1);
}

static void give(linnet_session *s) {
    const ln_program *p = &s->plan->program;
    ln_store_lock(s->store, true);
    /* If a device fails, later reads of its values fail, or recall them. */
    for (uint8_t place = 1; ln_store_is_shared(s->store) && place <= s->plan->n_devices; ++place)
        (void)fetch_from(s, place, -1, NULL);
    for (int32_t i = 0; i < p->n_moves; ++i)
        if (holds(s, &p->moves[i])) ln_lose_or_keep(s, p->moves[i].from.device, variable_of(p, &p->moves[i]));
    ln_store_unlock(s->store);
}

void ln_device_variables_give(linnet_session *s) {
    if (!s->defers_downloads) return;
    if (atomic_load(&s->holder.count) > 0) give(s);
    ln_store_add_possible_holders(s->store, -1);
}

/* Writes the new values to the store at once, because the device could not copy them over its copies of the
 * variables. */
static linnet_status store_at_once(linnet_session *s, uint8_t place, linnet_error *error) {
    const ln_program *p = &s->plan->program;
    const linnet_device *d = &device_of(s, place)->is;
    linnet_status status = LINNET_OK;
    /* Failures of the copies are ignored; this function makes up for them. */
    (void)d->finish(d->context, s->queues[place - 1].queue);
    for (int32_t i = 0; i < p->n_moves; ++i) {
        const ln_move *move = &p->moves[i];
        if (move->from.device != place || !leaves_out(s, p, move)) continue;
        linnet_span from = {.buffer = s->root.on_devices.chunks[p->devices[place].first_chunk + move->from.index],
                            .offset = move->from.offset,
                            .bytes = move->bytes};
        int code = submit(s, move, &from);
        if (code == 0) code = complete(s, place);
        if (code == 0) {
            ln_store_release(s->store, variable_of(p, move)); /* another session may hold the previous value */
        } else if (!ln_lose_or_keep(s, place, variable_of(p, move))) {
            status = failed(s, move, code, status == LINNET_OK ? error : NULL);
        }
    }
    return status;
}

/* Submits copies of the new values over the device's copies of the variables, and lets the device begin. */
static void begin_commit(linnet_session *s, ln_instance *instance, uint8_t place) {
    const ln_program *p = instance->program;
    const ln_device_memory *m = &p->devices[place];
    const linnet_device *d = &device_of(s, place)->is;
    ln_queue *q = &s->queues[place - 1];
    q->leaves_out = false, q->code = 0;
    for (int32_t i = 0; i < p->n_moves; ++i) {
        const ln_move *move = &p->moves[i];
        if (move->from.device != place) continue;
        const linnet_span from = {.buffer = instance->on_devices.chunks[m->first_chunk + move->from.index],
                                  .offset = move->from.offset,
                                  .bytes = move->bytes},
                          to = copy_of(instance, move);
        q->busy = true;
        const int copied = d->copy(d->context, q->queue, &to, d, &from);
        /* If the copy cannot be submitted, the next run uploads the value. If it fails later, in the queue, the next
         * run reports the failure. */
        instance->on_devices.versions[m->first_weight + move->weight] =
            copied == 0 ? 1 + ln_store_version(s->store, variable_of(p, move)) : 0;
        q->leaves_out |= leaves_out(s, p, move);
        if (leaves_out(s, p, move) && q->code == 0) q->code = copied;
    }
    if (!q->leaves_out || q->code != 0) return;
    q->code = d->record(d->context, q->queue, q->event);
    if (q->code == 0 && d->flush != NULL) q->code = d->flush(d->context, q->queue);
}

/* Waits for the copies. */
static linnet_status end_commit(linnet_session *s, ln_instance *instance, uint8_t place, linnet_error *error) {
    const ln_program *p = instance->program;
    const ln_device_memory *m = &p->devices[place];
    const linnet_device *d = &device_of(s, place)->is;
    ln_queue *q = &s->queues[place - 1];
    if (!q->leaves_out) return LINNET_OK;
    const int code = q->code == 0 ? d->wait(d->context, q->event) : q->code;
    if (code == 0) q->busy = false;
    for (int32_t i = 0; i < p->n_moves; ++i) {
        const ln_move *move = &p->moves[i];
        if (move->from.device != place) continue;
        if (code != 0)
            instance->on_devices.versions[m->first_weight + move->weight] = 0;
        else if (leaves_out(s, p, move))
            ln_store_hold(s->store, variable_of(p, move), &s->holder);
    }
    return code == 0 ? LINNET_OK : store_at_once(s, place, error);
}

linnet_status ln_device_commit(linnet_session *s, ln_instance *instance, linnet_error *error) {
    linnet_status status = LINNET_OK;
    /* The last steps of the run have waited for all work. */
    for (int32_t d = 0; d < s->plan->n_devices; ++d) s->queues[d].busy = false;
    /* Devices work side by side: for hosts, this is one way there and back, however many they are. */
    for (uint8_t place = 1; place <= instance->program->n_devices; ++place) begin_commit(s, instance, place);
    for (uint8_t place = 1; place <= instance->program->n_devices; ++place) {
        const linnet_status one = end_commit(s, instance, place, status == LINNET_OK ? error : NULL);
        if (status == LINNET_OK) status = one;
    }
    return status;
}
