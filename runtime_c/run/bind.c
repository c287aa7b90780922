/* bind.c - memory of the caller in place of a session's inputs and outputs.
 * The operands of all steps are resolved again when memory is bound, so a run costs the same as without. */
#include "run/session.h"

static const ln_port *port_at(const ln_program *p, int32_t i) {
    return i < p->n_inputs ? &p->inputs[i] : &p->outputs[i - p->n_inputs];
}

void *ln_bound_memory(const linnet_session *s, uint64_t offset) {
    const ln_program *p = &s->plan->program;
    for (int32_t i = 0; i < p->n_inputs + p->n_outputs; ++i) {
        const ln_port *port = port_at(p, i);
        if (s->bound[i] != NULL && port->operand.region == LN_REGION_IO && offset - port->operand.offset < port->bytes)
            return s->bound[i] + (offset - port->operand.offset);
    }
    return NULL;
}

static linnet_status refuse(linnet_status code, const char *what, const char *tensor, linnet_error *error) {
    ln_fail(error, code, "%s", what);
    ln_at_tensor(error, tensor);
    return code;
}

/* Whether the memory for port i overlaps other bound memory, so that a run would write what another step reads. Two
   outputs that are one tensor cannot both be bound. */
static bool overlaps(const linnet_session *s, int32_t i, const char *data) {
    const ln_program *p = &s->plan->program;
    for (int32_t k = 0; k < p->n_inputs + p->n_outputs; ++k) {
        if (k == i || s->bound[k] == NULL || (i < p->n_inputs && k < p->n_inputs)) continue;
        if (port_at(p, k)->operand.offset == port_at(p, i)->operand.offset) return true;
        const uintptr_t a = (uintptr_t)data, b = (uintptr_t)s->bound[k];
        if (a < b + port_at(p, k)->bytes && b < a + port_at(p, i)->bytes) return true;
    }
    return false;
}

static linnet_status check(const linnet_session *s, int32_t i, const char *data, size_t bytes, linnet_error *error) {
    const ln_port *port = port_at(&s->plan->program, i);
    for (int32_t d = 0; d < ln_device_count(s->plan->n_devices); ++d)
        if (s->plan->devices[d].limits.shared)
            return refuse(LINNET_UNSUPPORTED, "a device reads the inputs and outputs of this session in place",
                          port->name, error);
    if (port->operand.region != LN_REGION_IO || port->dims_slot >= 0)
        return refuse(LINNET_UNSUPPORTED, "the shape of this output depends on data, so it cannot be bound", port->name,
                      error);
    if (bytes != port->bytes) {
        refuse(LINNET_WRONG_SHAPE, "the size of the memory differs from the plan", port->name, error);
        ln_expected(error, "%llu bytes", (unsigned long long)port->bytes);
        return ln_got(error, "%zu bytes", bytes);
    }
    if ((uintptr_t)data % LN_ALIGNMENT != 0) {
        refuse(LINNET_INVALID_ARGUMENT, "the memory is not aligned", port->name, error);
        return ln_expected(error, "an address that is a multiple of %d", LN_ALIGNMENT);
    }
    if (!overlaps(s, i, data)) return LINNET_OK;
    return refuse(LINNET_INVALID_ARGUMENT, "an output overlaps other memory that is bound", port->name, error);
}

static linnet_status bind_port(linnet_session *s, int32_t i, char *data, size_t bytes, linnet_error *error) {
    const linnet_status status = data != NULL ? check(s, i, data, bytes, error) : LINNET_OK;
    if (status != LINNET_OK || s->bound[i] == data) return status;
    s->bound[i] = data;
    s->binds = true;
    ln_instance_rebind(s, &s->root);
    ln_instance_publish(s, &s->root);
    return LINNET_OK;
}

linnet_status linnet_session_bind_input(linnet_session *s, int i, void *data, size_t bytes, linnet_error *error) {
    if (s == NULL || i < 0 || i >= s->plan->program.n_inputs)
        return ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_session_bind_input: the plan has no such input");
    return bind_port(s, i, data, bytes, error);
}

linnet_status linnet_session_bind_output(linnet_session *s, int i, void *data, size_t bytes, linnet_error *error) {
    const ln_program *p = s != NULL ? &s->plan->program : NULL;
    if (p == NULL || i < 0 || i >= s->plan->n_outputs)
        return ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_session_bind_output: the plan has no such output");
    if (!s->plan->separate) {
        refuse(LINNET_UNSUPPORTED, "outputs of this plan may share memory", s->plan->outputs[i].name, error);
        return ln_hint(error, "plan with linnet_plan_config.separate_outputs = 1");
    }
    for (int32_t k = 0; k < p->n_outputs; ++k)
        if (p->outputs[k].index == i) return bind_port(s, p->n_inputs + k, data, bytes, error);
    return refuse(LINNET_UNSUPPORTED, "the shape of this output depends on data, so it cannot be bound",
                  s->plan->outputs[i].name, error);
}
