/* operand.c - where the operand of a step is: in the file, the store, the session's memory, the caller's memory, or the
 * memory of an earlier segment. Also says which inputs and outputs may be replaced by memory of the caller. */
#include "run/operand.h"

#include "model/store.h"

/* Returns the address of the value in an earlier instance. */
static void *imported(const linnet_session *session, const ln_instance *instance, int32_t value) {
    for (const ln_instance *from = instance->parent; from != NULL; from = from->parent)
        for (int32_t i = 0; i < from->program->n_exports; ++i)
            if (from->program->exports[i].value == value &&
                from->program->exports[i].operand.region != LN_REGION_IMPORT)
                return ln_instance_pointer(session, from, &from->program->exports[i].operand);
    return NULL;
}

/* Returns the caller's memory at an offset of the session's io; NULL: the session's own memory. */
static void *bound_memory(const linnet_session *s, uint64_t offset) {
    const ln_program *p = &s->plan->program;
    for (int32_t i = 0; i < p->n_inputs + p->n_outputs; ++i) {
        const ln_port *port = ln_port_at(p, i);
        if (s->host_bindings[i] != NULL && port->operand.region == LN_REGION_IO &&
            offset - port->operand.offset < port->bytes)
            return s->host_bindings[i] + (offset - port->operand.offset);
    }
    return NULL;
}

void *ln_instance_pointer(const linnet_session *session, const ln_instance *instance, const ln_operand *o) {
    switch (o->region) {
    case LN_REGION_HOST: return (void *)(uintptr_t)o->pointer;
    case LN_REGION_VARIABLE:
        return ln_at(session->snapshot != NULL ? ln_snapshot_data(session->snapshot, o->index)
                                               : ln_store_data(session->store, o->index),
                     o->offset);
    case LN_REGION_IO: {
        void *given =
            session->has_host_bindings && instance == &session->root ? bound_memory(session, o->offset) : NULL;
        if (given == NULL && session->binds_all && instance == &session->root) return NULL;
        return given != NULL ? given : ln_at(instance->io, o->offset);
    }
    case LN_REGION_ARENA: return ln_on_cpu(o->device) ? ln_at(instance->arena, o->offset) : NULL;
    case LN_REGION_GROWN: return instance->grown[o->offset].data;
    case LN_REGION_IMPORT:
        return ln_at(instance->outer != NULL ? instance->runner->buffers.inputs[o->index]
                                             : imported(session, instance, o->index),
                     o->offset);
    default: return NULL;
    }
}

int32_t ln_port_of_output(const linnet_session *s, int i) {
    const ln_program *p = &s->plan->program;
    for (int32_t k = 0; k < p->n_outputs; ++k)
        if (p->outputs[k].index == i) return p->n_inputs + k;
    return -1;
}

const char *ln_cannot_bind(const linnet_session *s, int32_t i) {
    const ln_port *port = i >= 0 ? ln_port_at(&s->plan->program, i) : NULL;
    if (port == NULL || port->operand.region != LN_REGION_IO || port->dims_slot >= 0)
        return "the shape of this output depends on data, so it cannot be bound";
    if (i >= s->plan->program.n_inputs && !s->plan->separate)
        return "outputs may share memory, unless the plan is made with linnet_plan_config.separate_outputs";
    return NULL;
}

/* Counts the inputs and outputs without memory. */
static int32_t count_unbound(const linnet_session *s) {
    const ln_program *p = &s->plan->program;
    int32_t count = 0;
    for (int32_t i = 0; s->binds_all && i < p->n_inputs + p->n_outputs; ++i)
        count += s->host_bindings[i] == NULL && ln_port_at(p, i)->bytes > 0;
    return count;
}

void ln_count_bindings(linnet_session *s) { s->unbound = count_unbound(s); }

linnet_status ln_expect_bindings(linnet_session *s, linnet_error *error) {
    const ln_program *p = &s->plan->program;
    for (int32_t i = 0; i < p->n_inputs + p->n_outputs; ++i) {
        const char *what = ln_cannot_bind(s, i);
        if (what == NULL) continue;
        ln_fail(error, LINNET_UNSUPPORTED, "%s", what);
        ln_at_tensor(error, ln_port_at(p, i)->name);
        return ln_hint(error, "make the session without binds_all"), LINNET_UNSUPPORTED;
    }
    ln_count_bindings(s);
    return LINNET_OK;
}

linnet_status ln_check_bindings(const linnet_session *s, linnet_error *error) {
    const ln_program *p = &s->plan->program;
    int32_t i = 0;
    if (s->unbound == 0) return LINNET_OK;
    while (s->host_bindings[i] != NULL || ln_port_at(p, i)->bytes == 0) ++i;
    ln_fail(error, LINNET_MISSING_INPUT, "the session has binds_all, and no memory is bound to this %s",
            i < p->n_inputs ? "input" : "output");
    ln_at_tensor(error, ln_port_at(p, i)->name);
    return ln_hint(error, "bind memory to all inputs and outputs before the first run"), LINNET_MISSING_INPUT;
}
