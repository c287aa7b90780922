/* device.c - devices during a session: queues, memory, constants, and the steps of devices. All work is submitted to a
   queue; only LN_STEP_WAIT blocks. plan/passes/ decides what runs on a device (places.c) and when to wait (waits.c). */
#include "run/device.h"

#include "model/snapshot.h"
#include "model/store.h"
#include "model/store_holders.h"
#include "plan/graph/refusals.h"
#include "run/constants.h"
#include "run/device_variables.h"
#include "run/watch.h"

#include <string.h>

static const ln_device *device_of(const linnet_session *s, uint8_t place) { return &s->plan->devices[place - 1]; }
static ln_queue *queue_of(const linnet_session *s, uint8_t place) { return &s->queues[place - 1]; }

/* ---- queues ------------------------------------------------------------------------------------------------------ */

linnet_status ln_queues_open(linnet_session *s, linnet_error *error) {
    for (uint8_t d = 1; d <= s->plan->n_devices; ++d) {
        const ln_device *device = device_of(s, d);
        ln_queue *q = queue_of(s, d);
        const bool traced = s->trace && device->is.open_traced != NULL;
        int code = (traced ? device->is.open_traced : device->is.open)(device->is.context, &q->queue);
        if (code != 0) return ln_device_failed(device, code, "open a queue", "", error);
        q->open = true;
        code = device->is.create_event(device->is.context, &q->event);
        if (code != 0) return ln_device_failed(device, code, "create an event", "", error);
        q->has_event = true;
    }
    return LINNET_OK;
}

void ln_queues_close(linnet_session *s) {
    for (uint8_t d = 1; d <= s->plan->n_devices; ++d) {
        const linnet_device *device = &device_of(s, d)->is;
        ln_queue *q = queue_of(s, d);
        if (q->has_event) device->free_event(device->context, q->event);
        if (q->open) device->close(device->context, q->queue);
        *q = (ln_queue){0};
    }
}

/* Marks the copies of variables on devices as outdated, so that the next run uploads the variables again. Values that
 * only a device has stay valid, because a run that fails never writes them. */
static void forget_variables(const linnet_session *s, ln_instance *instance) {
    const ln_program *p = instance->program;
    for (uint8_t place = 1; place <= p->n_devices; ++place) {
        const ln_device_memory *m = &p->devices[place];
        for (int32_t i = 0; i < m->first_constant; ++i)
            if (!ln_holds(s, m->weights[i].variable)) instance->on_devices.versions[m->first_weight + i] = 0;
    }
    for (int32_t i = 0; i < p->n_bodies; ++i) forget_variables(s, &instance->bodies[i]);
}

linnet_status ln_device_release_io(linnet_session *s, ln_instance *instance, linnet_error *error) {
    ln_device_objects *o = &instance->on_devices;
    for (uint8_t place = 1; place <= instance->program->n_devices; ++place) {
        const ln_device *device = device_of(s, place);
        const linnet_device *d = &device->is;
        if (!o->has_import[place - 1] || o->released[place - 1] || d->host_release == NULL) continue;
        queue_of(s, place)->busy = true;
        const int code = d->host_release(d->context, queue_of(s, place)->queue, o->imports[place - 1], instance->io,
                                         instance->program->io);
        if (code != 0) return ln_device_failed(device, code, "take the memory of inputs and outputs", "", error);
        o->released[place - 1] = true;
    }
    return LINNET_OK;
}

linnet_status ln_device_acquire_io(linnet_session *s, ln_instance *instance, linnet_error *error) {
    ln_device_objects *o = &instance->on_devices;
    for (uint8_t place = 1; place <= instance->program->n_devices; ++place) {
        const ln_device *device = device_of(s, place);
        const linnet_device *d = &device->is;
        const ln_queue *q = queue_of(s, place);
        if (!o->released[place - 1]) continue;
        o->released[place - 1] = false;
        int code = d->host_acquire(d->context, q->queue, o->imports[place - 1], instance->io, instance->program->io);
        if (code == 0) code = d->record(d->context, q->queue, q->event);
        if (code == 0) code = d->wait(d->context, q->event);
        if (code != 0) return ln_device_failed(device, code, "give back the memory of inputs and outputs", "", error);
    }
    return LINNET_OK;
}

/* Gives the host all memory of inputs and outputs after a run that stopped before its end. */
static void reclaim_all(linnet_session *s, ln_instance *instance) {
    if (!s->releases_io || instance->program == NULL || instance->on_devices.released == NULL) return;
    (void)ln_device_acquire_io(s, instance, NULL);
    for (int32_t i = 0; i < instance->program->n_bodies; ++i) reclaim_all(s, &instance->bodies[i]);
    for (ln_instance *child = instance->children; child != NULL; child = child->sibling) reclaim_all(s, child);
}

void ln_queues_finish(linnet_session *s) {
    for (uint8_t d = 1; d <= s->plan->n_devices; ++d) {
        const linnet_device *device = &device_of(s, d)->is;
        ln_queue *q = queue_of(s, d);
        if (q->busy) (void)device->finish(device->context, q->queue); /* the first failure has been reported */
        q->busy = false;
    }
    reclaim_all(s, &s->root);
    s->pending = false;
}

void ln_queues_abandon(linnet_session *s, ln_instance *last, bool ended) {
    if (ended)
        s->pending = true;
    else
        ln_queues_finish(s);
    for (; last != NULL; last = last->parent) forget_variables(s, last);
}

enum { SLICE_NS = 5000000 }; /* longest single wait; between waits, the caller's flag and timeout are checked */

/* Waits for the event, unless the caller ends the run before. Returns the device's code. */
static int wait_for(linnet_session *s, const ln_device *device, linnet_handle event, const ln_step *step,
                    linnet_status *ended, linnet_error *error) {
    const linnet_device *d = &device->is;
    int code = LINNET_DEVICE_PENDING;
    if (!s->watch.on || d->wait_until == NULL) return d->wait(d->context, event);
    while (code == LINNET_DEVICE_PENDING && s->watch.on) {
        code = d->wait_until(d->context, event, ln_watch_left(&s->watch, SLICE_NS));
        if (code == LINNET_DEVICE_PENDING) *ended = ln_watch_look(&s->watch, step, error);
        if (*ended != LINNET_OK) return 0;
    }
    return code == LINNET_DEVICE_PENDING ? d->wait(d->context, event) : code;
}

linnet_status ln_queues_drain(linnet_session *s, linnet_error *error) {
    for (uint8_t d = 1; d <= s->plan->n_devices; ++d) {
        const ln_device *device = device_of(s, d);
        ln_queue *q = queue_of(s, d);
        linnet_status ended = LINNET_OK;
        if (!q->busy) continue;
        int code = device->is.record(device->is.context, q->queue, q->event);
        if (code == 0) code = wait_for(s, device, q->event, NULL, &ended, error);
        if (ended != LINNET_OK) {
            ln_fail(error, ended, "the run ended while device %s still had earlier work of this session",
                    device->is.name);
            ln_hint(error, "the device continues; wait or run again with more time");
            return ended;
        }
        if (code != 0) {
            ln_queues_abandon(s, &s->root, false);
            return ln_device_failed(device, code, "complete earlier work", "", error);
        }
        q->busy = false;
    }
    reclaim_all(s, &s->root);
    s->pending = false;
    return LINNET_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Returns the memory of an operand that a device sees. */
static linnet_span span_of(const linnet_session *s, const ln_instance *instance, uint8_t place, const ln_operand *o,
                           uint64_t bytes) {
    const ln_device_objects *d = &instance->on_devices;
    linnet_span span = {.offset = o->offset, .bytes = bytes};
    if (o->region == LN_REGION_IO)
        span.buffer = d->imports[place - 1];
    else if (o->region == LN_REGION_WEIGHTS && o->index == LN_CHUNK_FILE)
        span.buffer = device_of(s, place)->file;
    else if ((o->region == LN_REGION_ARENA || o->region == LN_REGION_WEIGHTS) && o->device == place)
        span.buffer = d->chunks[instance->program->devices[place].first_chunk + o->index];
    else
        span = (linnet_span){0};
    return span;
}

/* Allocates everything except constants. */
static linnet_status allocate(linnet_session *s, ln_instance *instance, uint8_t place, linnet_error *error) {
    const ln_device *device = device_of(s, place);
    const ln_device_memory *m = &instance->program->devices[place];
    ln_device_objects *d = &instance->on_devices;
    for (int32_t i = 0; i < ln_own_chunks(m); ++i) {
        const int32_t at = m->first_chunk + i;
        const linnet_status status = ln_device_allocate(device, m->chunks[i], &d->chunks[at], error);
        if (status != LINNET_OK) return status;
        d->has_chunk[at] = true;
    }
    const uint64_t io = instance->program->io;
    if (!device->limits.shared || io == 0 || instance->program->n_claims == 0 ||
        (device->limits.import_alignment > LN_ALIGNMENT && instance != &s->root))
        return LINNET_OK;
    const int code =
        device->is.import(device->is.context, instance->io,
                          ln_round_up((size_t)io, (size_t)device->limits.import_alignment), &d->imports[place - 1]);
    if (code != 0) return ln_device_failed(device, code, "import the memory of inputs and outputs", "", error);
    d->has_import[place - 1] = true;
    return LINNET_OK;
}

static void describe(const ln_tensor *t, const ln_step_value *value, linnet_device_tensor *out) {
    out->struct_size = sizeof *out;
    ln_device_tensor(t, value, out);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static linnet_status prepare(linnet_session *s, ln_instance *instance, const ln_step *step, linnet_error *error) {
    const ln_claim *c = step->claim;
    ln_device_objects *d = &instance->on_devices;
    const ln_device *device = device_of(s, step->device);
    const ln_device_memory *m = &instance->program->devices[step->device];
    ln_resolved_claim *resolved = &d->claims[c->number];
    linnet_span *spans = d->spans + c->first_span;
    for (int32_t i = 0; i < c->n; ++i) {
        const linnet_step *seen = &c->steps[i];
        const int n_in = linnet_step_input_count(seen), n = n_in + linnet_step_output_count(seen);
        d->steps[c->first_member + i] = seen;
        d->inputs[c->first_member + i] = spans;
        d->outputs[c->first_member + i] = spans + n_in;
        for (int k = 0; k < n; ++k)
            spans[k] = span_of(s, instance, step->device, &c->operands[i][k], seen->values[k].bytes);
        spans += n;
    }
    linnet_work *work = &resolved->work;
    *work = (linnet_work){.struct_size = sizeof *work, .count = c->n, .trace = s->trace, .cache = s->program_cache};
    work->steps = d->steps + c->first_member;
    work->inputs = d->inputs + c->first_member;
    work->outputs = d->outputs + c->first_member;
    if (c->scratch_bytes > 0)
        work->scratch =
            (linnet_span){.buffer = d->chunks[m->first_chunk + m->scratch_chunk], .bytes = c->scratch_bytes};
    if (c->packed_bytes > 0)
        work->packed = (linnet_span){.buffer = d->chunks[m->first_chunk + c->packed_chunk],
                                     .offset = c->packed_offset,
                                     .bytes = c->packed_bytes};
    if (device->is.prepare != NULL) {
        queue_of(s, step->device)->busy = true;
        const int code =
            device->is.prepare(device->is.context, queue_of(s, step->device)->queue, work, &resolved->state);
        if (code == LINNET_DEVICE_REFUSES) s->refused = step;
        if (code != 0) return ln_device_failed(device, code, "prepare a step", step->name, error);
    }
    work->cache = NULL;
    resolved->prepared = true;
    return LINNET_OK;
}

linnet_status ln_note_refused(linnet_session *s, ln_refusals *refusals, linnet_status status, linnet_error *error) {
    const ln_step *step = LN_HAS_DEVICES ? s->refused : NULL;
    s->refused = NULL;
    if (step == NULL || ln_refuse_steps(refusals, step->claim->graph, step->claim->steps, step->claim->n, step->device))
        return status;
    return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate a session");
}

static void bind_transfer(const linnet_session *s, const ln_instance *instance, const ln_step *step) {
    ln_resolved_transfer *t = &instance->on_devices.transfers[step->number];
    const ln_tensor *tensor = &step->call.inputs[0];
    const ln_program *p = instance->program;
    const int32_t variable = step->kind == LN_STEP_UPLOAD && step->weight >= 0
                                 ? p->devices[step->device].weights[step->weight].variable
                                 : -1;
    describe(tensor,
             &(ln_step_value){.name = step->name,
                              .variable = variable >= 0 ? p->model->variables[variable].name : NULL,
                              .token = step->token,
                              .device = &device_of(s, step->device)->is,
                              .bytes = step->token != 0 ? step->token_bytes : step->bytes},
             &t->tensor);
    for (int k = 0; k < 2; ++k) {
        const ln_operand *o = k == 0 ? step->inputs : step->outputs;
        t->spans[k] = ln_on_cpu(o->device) ? (linnet_span){0} : span_of(s, instance, o->device, o, t->tensor.bytes);
    }
}

linnet_status ln_device_prepare(linnet_session *s, ln_instance *instance, linnet_error *error) {
    const ln_program *p = instance->program;
    linnet_status status = LINNET_OK;
    for (uint8_t place = 1; place <= p->n_devices && status == LINNET_OK; ++place)
        status = allocate(s, instance, place, error);
    if (status == LINNET_OK) status = ln_constants_take(s, instance, error);
    for (int32_t i = 0; i < p->n_events && status == LINNET_OK; ++i) {
        const ln_device *device = device_of(s, p->event_devices[i]);
        const int code = device->is.create_event(device->is.context, &instance->on_devices.events[i]);
        if (code != 0) return ln_device_failed(device, code, "create an event", "", error);
        instance->on_devices.has_event[i] = true;
    }
    for (int32_t i = 0; p->n_devices > 0 && i < p->n_steps && status == LINNET_OK; ++i) {
        const ln_step *step = &p->steps[i];
        if (step->claim != NULL) status = prepare(s, instance, step, error);
        if (step->kind == LN_STEP_UPLOAD || step->kind == LN_STEP_DOWNLOAD || step->kind == LN_STEP_COPY)
            bind_transfer(s, instance, step);
    }
    for (uint8_t place = 1; place <= p->n_devices && status == LINNET_OK; ++place) {
        const ln_device *device = device_of(s, place);
        if (!queue_of(s, place)->busy) continue;
        const int code = device->is.finish(device->is.context, queue_of(s, place)->queue);
        queue_of(s, place)->busy = false;
        if (code != 0) return ln_device_failed(device, code, "prepare its steps", "", error);
    }
    for (int32_t i = 0; i < p->n_bodies && status == LINNET_OK; ++i)
        status = ln_device_prepare(s, &instance->bodies[i], error);
    return status;
}

void ln_device_release(linnet_session *s, ln_instance *instance) {
    const ln_program *p = instance->program;
    ln_device_objects *d = &instance->on_devices;
    if (p->n_devices == 0 || d->chunks == NULL) return;
    for (int32_t i = 0; i < p->n_bodies; ++i)
        if (instance->bodies[i].program != NULL) ln_device_release(s, &instance->bodies[i]);
    ln_queues_finish(s);
    for (int32_t i = 0; i < p->n_steps; ++i) {
        const ln_step *step = &p->steps[i];
        const ln_resolved_claim *resolved = step->claim != NULL ? &d->claims[step->claim->number] : NULL;
        if (resolved == NULL || !resolved->prepared) continue;
        const linnet_device *device = &device_of(s, step->device)->is;
        if (device->unprepare != NULL) device->unprepare(device->context, resolved->state);
    }
    for (int32_t i = 0; i < p->n_events; ++i) {
        const linnet_device *device = &device_of(s, p->event_devices[i])->is;
        if (d->has_event[i]) device->free_event(device->context, d->events[i]);
    }
    ln_constants_give(instance);
    for (uint8_t place = 1; place <= p->n_devices; ++place) {
        const linnet_device *device = &device_of(s, place)->is;
        const ln_device_memory *m = &p->devices[place];
        for (int32_t i = 0; i < ln_own_chunks(m); ++i)
            if (d->has_chunk[m->first_chunk + i])
                device->release(device->context, d->chunks[m->first_chunk + i], m->chunks[i]);
        if (d->has_import[place - 1])
            device->release(device->context, d->imports[place - 1],
                            ln_round_up((size_t)p->io, (size_t)device_of(s, place)->limits.import_alignment));
    }
}

/* Tells whether the device has the current value of a variable. If not, the caller uploads it. */
static bool is_current(const linnet_session *s, const ln_instance *instance, const ln_step *step) {
    const ln_device_memory *m = &instance->program->devices[step->device];
    const int32_t variable = m->weights[step->weight].variable;
    const uint64_t version =
        1 + (s->snapshot != NULL ? ln_snapshot_version(s->snapshot, variable) : ln_store_version(s->store, variable));
    uint64_t *uploaded = &instance->on_devices.versions[m->first_weight + step->weight];
    if (*uploaded == version) return true;
    *uploaded = version;
    return false;
}

/* Uploads the value of a variable, straight from its file if nobody has read it here. */
static int upload_variable(const linnet_session *s, const ln_instance *instance, const ln_step *step,
                           const ln_resolved_transfer *t, const void *stored) {
    const linnet_device *d = &device_of(s, step->device)->is;
    const int32_t variable = instance->program->devices[step->device].weights[step->weight].variable;
    const void *file = ln_store_unread(s->store, variable);
    const linnet_handle queue = queue_of(s, step->device)->queue;
    if (file == NULL) return d->upload(d->context, queue, &t->tensor, &t->spans[1], stored);
    linnet_device_tensor tensor = t->tensor;
    tensor.data = file;
    tensor.constant = true;
    const int code = d->upload(d->context, queue, &tensor, &t->spans[1], file);
    ln_store_forget(s->store, variable, file);
    return code;
}

/* Copies from one device to another on the queue of the second. The two queues wait for each other, and the host does
 * not wait. */
static int copy(linnet_session *s, const ln_instance *instance, const ln_step *step, const ln_resolved_transfer *t) {
    const uint8_t from = step->inputs[0].device, to = step->device;
    const linnet_device *source = &device_of(s, from)->is, *target = &device_of(s, to)->is;
    ln_queue *out = queue_of(s, from), *in = queue_of(s, to);
    const linnet_handle written = instance->on_devices.events[step->event - 1],
                        read = instance->on_devices.events[step->event];
    out->busy = in->busy = true;
    int code = source->record(source->context, out->queue, written);
    if (code == 0) code = target->follow(target->context, in->queue, source, written);
    if (code == 0) code = target->copy(target->context, in->queue, &t->spans[1], source, &t->spans[0]);
    if (code == 0) code = target->record(target->context, in->queue, read);
    if (code == 0) code = source->follow(source->context, out->queue, target, read);
    return code;
}

linnet_status ln_device_move(linnet_session *s, const ln_port *port, const ln_device_binding *binding, void *host,
                             bool to_device, linnet_error *error) {
    const ln_device *device = device_of(s, binding->place);
    const linnet_device *d = &device->is;
    ln_queue *q = queue_of(s, binding->place);
    linnet_device_tensor tensor;
    describe(&port->tensor, &(ln_step_value){.name = port->name, .bytes = port->bytes}, &tensor);
    q->busy = true;
    int code = to_device ? d->upload(d->context, q->queue, &tensor, &binding->span, host)
                         : d->download(d->context, q->queue, &tensor, host, &binding->span);
    if (code == 0) code = d->record(d->context, q->queue, q->event);
    if (code == 0) code = d->wait(d->context, q->event);
    if (code != 0)
        return ln_device_failed(device, code, to_device ? "store an output" : "fetch an input", port->name, error);
    q->busy = false;
    return LINNET_OK;
}

linnet_status ln_device_step(linnet_session *s, ln_instance *instance, const ln_resolved_step *resolved,
                             linnet_error *error) {
    static const char doing[][34] = {[LN_STEP_UPLOAD] = "upload a value",
                                     [LN_STEP_DOWNLOAD] = "download a value",
                                     [LN_STEP_COPY] = "copy a value",
                                     [LN_STEP_WAIT] = "complete the work before a result",
                                     [LN_STEP_DEVICE] = "run a step"};
    const ln_step *step = resolved->step;
    const ln_device *device = device_of(s, step->device);
    const linnet_device *d = &device->is;
    ln_queue *q = queue_of(s, step->device);
    const ln_device_objects *objects = &instance->on_devices;
    const ln_resolved_transfer *t = &objects->transfers[step->number];
    int code = 0;
    linnet_status ended = LINNET_OK;
    switch (step->kind) {
    case LN_STEP_UPLOAD:
        s->left_out = step->weight >= 0 && is_current(s, instance, step);
        if (s->left_out) return LINNET_OK;
        s->refreshed |= step->weight >= 0;
        q->busy = true;
        code = t->binding != NULL ? d->copy(d->context, q->queue, &t->spans[1], d, &t->binding->span)
               : step->weight >= 0 && s->snapshot == NULL
                   ? upload_variable(s, instance, step, t, resolved->buffers.inputs[0])
                   : d->upload(d->context, q->queue, &t->tensor, &t->spans[1], resolved->buffers.inputs[0]);
        break;
    case LN_STEP_DOWNLOAD:
        q->busy = true;
        s->left_out = ln_leaves_out(s, instance, step);
        if (!s->left_out)
            code = t->binding != NULL
                       ? d->copy(d->context, q->queue, &t->binding->span, d, &t->spans[0])
                       : d->download(d->context, q->queue, &t->tensor, resolved->buffers.outputs[0], &t->spans[0]);
        if (code == 0 && step->event > 0) code = d->record(d->context, q->queue, objects->events[step->event - 1]);
        break;
    case LN_STEP_COPY: code = copy(s, instance, step, t); break;
    case LN_STEP_WAIT:
        if (step->event == 0) code = d->record(d->context, q->queue, q->event);
        if (code == 0)
            code =
                wait_for(s, device, step->event > 0 ? objects->events[step->event - 1] : q->event, step, &ended, error);
        if (ended != LINNET_OK) return ended;
        break;
    default: {
        const ln_resolved_claim *claim = &objects->claims[step->claim->number];
        q->busy = true;
        code = d->run(d->context, q->queue, &claim->work, claim->state);
        break;
    }
    }
    return code == 0 ? LINNET_OK : ln_device_failed(device, code, doing[step->kind], step->name, error);
}
