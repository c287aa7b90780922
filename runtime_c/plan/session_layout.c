/* session_layout.c - see session_layout.h. One function both measures a block and divides it. A plan therefore counts
   exactly the bytes that a session allocates. */
#include "plan/session_layout.h"

#include "base/platform_threads.h"

int32_t ln_segment_key_words(const ln_program *program) {
    int64_t n = 0;
    for (int32_t i = 0; program->rest != NULL && i < program->n_exports; ++i) {
        const ln_port *port = &program->exports[i];
        if (port->dims_slot >= 0) n += port->tensor.rank;
        if (port->wanted) n += ln_ceil_div((int64_t)port->bytes, 8);
    }
    return (int32_t)n;
}

/* A bump allocator that can also measure: with base NULL only `used` grows. */
typedef struct carver {
    char *base;
    size_t used;
} carver;

static void *carve(carver *c, size_t count, size_t size) {
    const size_t at = ln_round_up(c->used, 16);
    c->used = at + count * size;
    return c->base != NULL ? c->base + at : NULL;
}

static void carve_devices(carver *c, const ln_program *p, ln_device_objects *d) {
    d->chunks = carve(c, (size_t)p->n_chunks, sizeof *d->chunks);
    d->events = carve(c, (size_t)p->n_events, sizeof *d->events);
    d->imports = carve(c, (size_t)p->n_devices, sizeof *d->imports);
    d->has_chunk = carve(c, (size_t)p->n_chunks, sizeof *d->has_chunk);
    d->has_event = carve(c, (size_t)p->n_events, sizeof *d->has_event);
    d->has_import = carve(c, (size_t)p->n_devices, sizeof *d->has_import);
    d->released = carve(c, (size_t)p->n_devices, sizeof *d->released);
    d->versions = carve(c, (size_t)p->n_weights, sizeof *d->versions);
    d->claims = carve(c, (size_t)p->n_claims, sizeof *d->claims);
    d->transfers = carve(c, (size_t)p->n_transfers, sizeof *d->transfers);
    d->spans = carve(c, (size_t)p->n_spans, sizeof *d->spans);
    d->steps = carve(c, (size_t)p->n_members, sizeof *d->steps);
    d->inputs = carve(c, (size_t)p->n_members, sizeof *d->inputs);
    d->outputs = carve(c, (size_t)p->n_members, sizeof *d->outputs);
}

static void carve_instance(carver *c, const ln_program *p, ln_instance *instance) {
    size_t operands = 0;
    for (int32_t i = 0; i < p->n_steps; ++i)
        operands += (size_t)p->steps[i].call.n_inputs + p->steps[i].call.n_extra + p->steps[i].call.n_outputs;
    instance->steps = carve(c, (size_t)p->n_steps, sizeof *instance->steps);
    instance->pointers = carve(c, operands, sizeof(void *));
    instance->trace = carve(c, (size_t)p->n_steps, sizeof *instance->trace);
    instance->dims = carve(c, (size_t)p->n_dims * LN_MAX_RANK, sizeof *instance->dims);
    instance->next_key = carve(c, (size_t)ln_segment_key_words(p), sizeof *instance->next_key);
    instance->packed_variables = carve(c, (size_t)p->n_packed_variables, sizeof(ln_packed_variable *));
    if (ln_device_count(p->n_devices) > 0) carve_devices(c, p, &instance->on_devices);
    instance->grown = carve(c, (size_t)p->n_grown, sizeof *instance->grown);
    instance->bodies = carve(c, (size_t)p->n_bodies, sizeof *instance->bodies);
    ln_instance measured, *body = c->base != NULL ? instance->bodies : &measured;
    for (int32_t i = 0; i < p->n_steps; ++i)
        for (int k = 0; k < 2 && p->steps[i].bodies[k] != NULL; ++k) {
            carve_instance(c, p->steps[i].bodies[k], body);
            if (c->base != NULL) ++body;
        }
}

void ln_instance_carve(ln_instance *instance, void *block) {
    carver c = {.base = block};
    carve_instance(&c, instance->program, instance);
}

size_t ln_instance_size(const ln_program *program) {
    carver c = {0};
    ln_instance instance;
    carve_instance(&c, program, &instance);
    return c.used;
}

size_t ln_session_measure(const linnet_plan *plan, bool own_threads, ln_session_layout *at) {
    carver c = {0};
    carve(&c, 1, sizeof(linnet_session));
    carve(&c, (size_t)plan->n_outputs, sizeof(ln_session_output));
    at->outputs = c.used - (size_t)plan->n_outputs * sizeof(ln_session_output);
    carve(&c, (size_t)plan->n_devices, sizeof(ln_queue));
    at->queues = c.used - (size_t)plan->n_devices * sizeof(ln_queue);
    const size_t ports = (size_t)plan->program.n_inputs + (size_t)plan->program.n_outputs;
    carve(&c, ports, sizeof(char *));
    at->host_bindings = c.used - ports * sizeof(char *);
    const size_t device_bindings = ln_device_count(plan->n_devices) > 0 ? ports : 0;
    carve(&c, device_bindings, sizeof(ln_device_binding));
    at->device_bindings = c.used - device_bindings * sizeof(ln_device_binding);
    at->threads = ln_round_up(c.used, LN_ALIGNMENT);
    if (own_threads) c.used = at->threads + ln_threads_size(plan->threads - 1);
    at->instance = ln_round_up(c.used, LN_ALIGNMENT);
    return at->instance + ln_instance_size(&plan->program);
}

bool ln_plan_parallel(const linnet_plan *plan) {
    return plan->threads > 1 && (plan->program.parallel || plan->program.rest != NULL);
}

size_t ln_session_bookkeeping(const linnet_plan *plan) {
    ln_session_layout at;
    return ln_round_up(ln_session_measure(plan, ln_plan_parallel(plan), &at), LN_ALIGNMENT);
}
