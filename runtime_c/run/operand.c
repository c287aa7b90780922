/* operand.c - where the operand of a step is: in the file, the store, the session's memory, the caller's memory, or the
 * memory of an earlier segment. */
#include "run/session.h"

#include "model/store.h"

/* The address of the value in an earlier instance. */
static void *imported(const linnet_session *session, const ln_instance *instance, int32_t value) {
    for (const ln_instance *from = instance->parent; from != NULL; from = from->parent)
        for (int32_t i = 0; i < from->program->n_exports; ++i)
            if (from->program->exports[i].value == value &&
                from->program->exports[i].operand.region != LN_REGION_IMPORT)
                return ln_instance_pointer(session, from, &from->program->exports[i].operand);
    return NULL;
}

/* The caller's memory at an offset of the session's io; NULL: the session's own memory. */
static void *bound_memory(const linnet_session *s, uint64_t offset) {
    const ln_program *p = &s->plan->program;
    for (int32_t i = 0; i < p->n_inputs + p->n_outputs; ++i) {
        const ln_port *port = ln_port_at(p, i);
        if (s->bound[i] != NULL && port->operand.region == LN_REGION_IO && offset - port->operand.offset < port->bytes)
            return s->bound[i] + (offset - port->operand.offset);
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
        void *given = session->binds && instance == &session->root ? bound_memory(session, o->offset) : NULL;
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
