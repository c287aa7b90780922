/* bind.c - memory of the caller in place of a session's inputs and outputs.
 * The operands of all steps are resolved again when memory is bound, so a run costs the same as without. */
#include "plan/session_layout.h"
#include "run/bind_device.h"
#include "run/instance.h"
#include "run/operand.h"

/* Tells whether the memory for port i overlaps other bound memory. A run could then overwrite what a later step reads.
   So if two outputs are the same tensor, only one of them can be bound. */
static bool overlaps(const linnet_session *s, int32_t i, const char *data) {
    const ln_program *p = &s->plan->program;
    for (int32_t k = 0; k < p->n_inputs + p->n_outputs; ++k) {
        if (k == i || s->host_bindings[k] == NULL || ln_port_at(p, i)->bytes == 0 || ln_port_at(p, k)->bytes == 0 ||
            (i < p->n_inputs && k < p->n_inputs))
            continue;
        if (ln_port_at(p, k)->operand.offset == ln_port_at(p, i)->operand.offset) return true;
        const uintptr_t a = (uintptr_t)data, b = (uintptr_t)s->host_bindings[k];
        if (a < b + ln_port_at(p, k)->bytes && b < a + ln_port_at(p, i)->bytes) return true;
    }
    return false;
}

static bool in_place(const linnet_plan *plan) {
    for (int32_t d = 0; d < ln_device_count(plan->n_devices); ++d)
        if (plan->devices[d].limits.shared) return true;
    return false;
}

static linnet_status bind_port(linnet_session *s, int32_t i, char *data, size_t bytes, linnet_error *error) {
    const ln_port *port = i >= 0 ? ln_port_at(&s->plan->program, i) : NULL;
    linnet_status status = LINNET_UNSUPPORTED;
    const char *what = ln_cannot_bind(s, i), *hint = NULL;
    if (what == NULL && in_place(s->plan)) {
        what = "a device reads the inputs and outputs of this session in place";
        hint = "set inputs with linnet_session_set, or bind memory of the device (linnet_session_bind_device)";
    } else if (what == NULL && data != NULL && bytes != port->bytes) {
        status = LINNET_WRONG_SHAPE, what = "the size of the memory differs from the plan";
        /* Memory without elements may be anywhere. */
    } else if (what == NULL && bytes != 0 && (uintptr_t)data % LN_ALIGNMENT != 0) {
        status = LINNET_INVALID_ARGUMENT, what = "the memory is not aligned to 64 bytes";
    } else if (what == NULL && data != NULL && overlaps(s, i, data)) {
        status = LINNET_INVALID_ARGUMENT, what = "an output overlaps other memory that is bound";
    }
    if (what != NULL) {
        ln_fail(error, status, "%s", what);
        if (port != NULL) ln_at_tensor(error, port->name);
        if (status == LINNET_WRONG_SHAPE) ln_expected(error, "%llu bytes", (unsigned long long)port->bytes);
        if (hint != NULL) ln_hint(error, "%s", hint);
        return status;
    }
    s->host_bindings[i] = data;
    s->has_host_bindings = true;
    ln_count_bindings(s);
    if (ln_device_count(s->plan->n_devices) > 0) ln_device_binding_clear(s, i);
    ln_instance_rebind(s, &s->root);
    ln_instance_publish(s, &s->root);
    return LINNET_OK;
}

static linnet_status no_port(linnet_error *error) {
    return ln_fail(error, LINNET_INVALID_ARGUMENT, "the plan has no input or output of this number");
}

linnet_status linnet_session_bind_input(linnet_session *s, int i, void *data, size_t bytes, linnet_error *error) {
    if (s == NULL || i < 0 || i >= s->plan->program.n_inputs) return no_port(error);
    return bind_port(s, i, data, bytes, error);
}

linnet_status linnet_session_bind_output(linnet_session *s, int i, void *data, size_t bytes, linnet_error *error) {
    if (s == NULL || i < 0 || i >= s->plan->n_outputs) return no_port(error);
    return bind_port(s, ln_port_of_output(s, i), data, bytes, error);
}
