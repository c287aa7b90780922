/* instance.c - a program bound to memory: resolves every operand of its steps and bodies, makes its outputs the
 * session's outputs, and releases its resources. */
#include "run/instance.h"

#include "plan/compile/packed.h"
#include "plan/continue.h"
#include "run/device.h"
#include "run/packed_variables.h"
#include "run/operand.h"

#include <string.h>

/* Returns the address of an operand for a kernel. A kernel takes NULL for an absent operand, so an operand of no bytes
 * gets a valid address. */
static void *operand(const linnet_session *session, const ln_instance *instance, const ln_operand *o) {
    static const char nothing[LN_ALIGNMENT];
    void *pointer = ln_instance_pointer(session, instance, o);
    const bool present = o->region == LN_REGION_HOST || o->region == LN_REGION_IO || o->region == LN_REGION_ARENA;
    return pointer == NULL && present ? (void *)(uintptr_t)nothing : pointer;
}

/* Binds every pointer of the instance and of the bodies that its steps run. */
static void bind(linnet_session *session, ln_instance *instance) {
    const ln_program *p = instance->program;
    const void **pointers = instance->pointers;
    ln_instance *body = instance->bodies;
    for (int32_t i = 0; i < p->n_steps; ++i) {
        const ln_step *step = &p->steps[i];
        const int n_in = step->call.n_inputs + step->call.n_extra;
        ln_resolved_step *resolved = &instance->steps[i];
        resolved->step = step;
        for (int k = 0; k < n_in; ++k) pointers[k] = operand(session, instance, &step->inputs[k]);
        for (int o = 0; o < step->call.n_outputs; ++o)
            pointers[n_in + o] = operand(session, instance, &step->outputs[o]);
        resolved->buffers.inputs = pointers;
        resolved->buffers.outputs = (void *const *)(pointers + n_in);
        resolved->buffers.packed =
            step->packed_variable >= 0 ? ln_packed_variable_content(instance, step) : ln_program_packed(p, step);
        resolved->buffers.scratch = ln_at(instance->arena, p->arena);
        resolved->buffers.thread_scratch =
            instance->arena != NULL ? ln_at(instance->arena, p->arena + ln_thread_scratch(p)) : (void *)resolved;
        resolved->buffers.thread_stride = p->scratch_thread;
        resolved->buffers.output_dims =
            step->dims_slot >= 0 ? instance->dims + (size_t)step->dims_slot * LN_MAX_RANK : NULL;
        resolved->buffers.error = &session->run_error;
        pointers += n_in + step->call.n_outputs;
        if (step->bodies[0] != NULL) resolved->state = body;
        for (int k = 0; k < 2 && step->bodies[k] != NULL; ++k, ++body) {
            body->program = step->bodies[k];
            body->outer = instance;
            body->runner = resolved;
            body->io = resolved->buffers.scratch;
            body->arena = ln_at(body->io, ln_round_up((size_t)body->program->io, LN_ALIGNMENT));
            bind(session, body);
        }
    }
}

void ln_instance_rebind(linnet_session *session, ln_instance *instance) {
    bind(session, instance);
    for (ln_instance *child = instance->children; child != NULL; child = child->sibling)
        ln_instance_rebind(session, child);
}

linnet_status ln_instance_bind(linnet_session *session, ln_instance *instance, void *block, linnet_error *error) {
    ln_instance_carve(instance, block);
    size_t packed = 0;
    const linnet_status status = ln_packed_variables_take(session, instance, &packed, error);
    if (instance->parent != NULL) session->packed_bytes += packed;
    if (status != LINNET_OK) return status;
    bind(session, instance);
    return ln_device_count(instance->program->n_devices) > 0 ? ln_device_prepare(session, instance, error) : LINNET_OK;
}

linnet_status ln_instance_reserve(linnet_session *s, ln_instance *instance, linnet_error *error) {
    if (ln_reserved_bytes(s->plan, instance->grown) == 0) return LINNET_OK;
    for (int32_t i = 0; i < instance->program->n_grown; ++i) {
        ln_grown *grown = &instance->grown[i];
        if (grown->size == 0 || (grown->data = ln_memory_alloc(&s->memory, grown->size)) != NULL) continue;
        grown->size = 0;
        return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate the results of a loop");
    }
    return LINNET_OK;
}

void ln_instance_shrink(linnet_session *s, ln_grown *grown) {
    ln_memory_free(&s->memory, grown->data, grown->size);
    *grown = (ln_grown){0};
}

void ln_instance_unbind(linnet_session *session, ln_instance *instance) {
    for (int32_t i = 0; instance->grown != NULL && i < instance->program->n_grown; ++i)
        ln_instance_shrink(session, &instance->grown[i]);
    const size_t freed = ln_packed_variables_release(session, instance);
    if (instance->parent != NULL)
        session->packed_bytes -= (size_t)ln_min((int64_t)session->packed_bytes, (int64_t)freed);
    if (LN_HAS_DEVICES) ln_device_release(session, instance);
}

void ln_instance_publish(linnet_session *session, const ln_instance *instance) {
    for (int32_t i = 0; i < instance->program->n_outputs; ++i) {
        const ln_port *port = &instance->program->outputs[i];
        ln_session_output *out = &session->outputs[port->index];
        out->data = ln_instance_pointer(session, instance, &port->operand);
        out->tensor = port->tensor;
        if (port->dims_slot >= 0)
            memcpy(out->tensor.dims, instance->dims + (size_t)port->dims_slot * LN_MAX_RANK, sizeof out->tensor.dims);
    }
}

void ln_session_no_outputs(linnet_session *s) {
    for (int32_t i = 0; i < s->plan->n_outputs; ++i)
        s->outputs[i] = (ln_session_output){.tensor = s->plan->outputs[i].tensor};
    ln_instance_publish(s, &s->root);
}
