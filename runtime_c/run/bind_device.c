/* bind_device.c - memory of a device in place of a session's inputs and outputs. If the device's own transfer is all
 * that uses the value, the device copies it. Otherwise it is staged: it goes through the session's memory, before the
 * steps or after them. */
#include "run/bind_device.h"

#include "run/device.h"
#include "run/instance.h"
#include "run/operand.h"

static bool uses(const ln_operand *o, const ln_port *port) {
    return o->region == LN_REGION_IO && o->offset - port->operand.offset < port->bytes;
}

static bool any_uses(const ln_port *ports, int32_t n, const ln_port *port) {
    for (int32_t i = 0; i < n; ++i)
        if (&ports[i] != port && uses(&ports[i].operand, port)) return true;
    return false;
}

/* Tells whether the step uses the value in any way other than a transfer between it and the device. The first such
 * transfer goes to *found; a second one counts as another use. */
static bool others_use(const ln_step *step, const ln_port *port, uint8_t place, ln_resolved_transfer *transfers,
                       ln_resolved_transfer **found) {
    bool used = false;
    const int n_in = step->call.n_inputs + step->call.n_extra;
    for (int k = 0; k < n_in; ++k) used |= uses(&step->inputs[k], port);
    for (int k = 0; k < step->call.n_outputs; ++k) used |= uses(&step->outputs[k], port);
    /* A claim of a device that shares memory with the host may use the value in place. */
    for (int32_t c = 0; step->claim != NULL && c < step->claim->n; ++c) {
        const linnet_step *seen = &step->claim->steps[c];
        const int n = linnet_step_input_count(seen) + linnet_step_output_count(seen);
        for (int k = 0; k < n; ++k) used |= uses(&step->claim->operands[c][k], port);
    }
    if (!used || step->kind == LN_STEP_WAIT) return false; /* a wait only keeps the memory of its operands */
    if ((step->kind != LN_STEP_UPLOAD && step->kind != LN_STEP_DOWNLOAD) || step->device != place || step->token != 0 ||
        *found != NULL)
        return true;
    *found = &transfers[step->number];
    return false;
}

void ln_device_binding_clear(linnet_session *s, int32_t i) {
    const ln_program *p = &s->plan->program;
    ln_device_binding *binding = &s->device_bindings[i];
    for (int32_t t = 0; t < p->n_transfers; ++t)
        if (s->root.on_devices.transfers[t].binding == binding) s->root.on_devices.transfers[t].binding = NULL;
    *binding = (ln_device_binding){0};
    s->staged = false;
    for (int32_t k = 0; k < p->n_inputs + p->n_outputs; ++k)
        s->staged |= !ln_on_cpu(s->device_bindings[k].place) && s->device_bindings[k].staged;
}

static linnet_status bind_port(linnet_session *s, int32_t i, const linnet_device *device, const linnet_span *span,
                               linnet_error *error) {
    const ln_program *p = &s->plan->program;
    const ln_port *port = i >= 0 ? ln_port_at(p, i) : NULL;
    uint8_t place = 1;
    const char *what = ln_cannot_bind(s, i);
    if (what != NULL) {
        ln_fail(error, LINNET_UNSUPPORTED, "%s", what);
        if (port != NULL) ln_at_tensor(error, port->name);
        return LINNET_UNSUPPORTED;
    }
    while (place <= s->plan->n_devices && s->plan->devices[place - 1].origin != device) ++place;
    if (place > s->plan->n_devices) {
        ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_plan_config.devices does not contain this device");
        ln_at_tensor(error, port->name);
        ln_hint(error, "use the device of the plan; the same name with other options is another device");
        return LINNET_INVALID_ARGUMENT;
    }
    const uint64_t alignment = s->plan->devices[place - 1].limits.alignment;
    if (span != NULL && span->bytes != port->bytes) {
        ln_fail(error, LINNET_WRONG_SHAPE, "the size of the memory differs from the plan");
        ln_at_tensor(error, port->name);
        ln_expected(error, "%llu bytes", (unsigned long long)port->bytes);
        ln_got(error, "%llu bytes", (unsigned long long)span->bytes);
        return LINNET_WRONG_SHAPE;
    }
    if (span != NULL && (span->buffer == 0 || span->offset % alignment != 0)) {
        ln_fail(error, LINNET_INVALID_ARGUMENT, "the span has no buffer, or an offset that the device cannot use");
        ln_at_tensor(error, port->name);
        ln_expected(error, "an offset that is a multiple of %llu", (unsigned long long)alignment);
        ln_got(error, "%llu", (unsigned long long)span->offset);
        return LINNET_INVALID_ARGUMENT;
    }
    ln_device_binding_clear(s, i);
    /* A staged value must not be written to memory that the caller has bound for the session to read. */
    if (s->host_bindings[i] != NULL) {
        s->host_bindings[i] = NULL;
        ln_instance_rebind(s, &s->root);
        ln_instance_publish(s, &s->root);
    }
    if (span == NULL) return LINNET_OK;
    ln_device_binding *binding = &s->device_bindings[i];
    *binding = (ln_device_binding){.place = place, .span = *span};
    ln_resolved_transfer *found = NULL;
    binding->staged = s->plan->devices[place - 1].is.copy == NULL || any_uses(p->exports, p->n_exports, port) ||
                      any_uses(p->commits, p->n_commits, port) || any_uses(p->outputs, p->n_outputs, port);
    for (int32_t k = 0; k < p->n_steps && !binding->staged; ++k)
        binding->staged = others_use(&p->steps[k], port, place, s->root.on_devices.transfers, &found);
    binding->staged |= i >= p->n_inputs && found == NULL;
    if (!binding->staged && found != NULL) found->binding = binding;
    s->staged |= binding->staged;
    return LINNET_OK;
}

linnet_status linnet_session_bind_device(linnet_session *s, bool output, int i, const linnet_device *device,
                                         const linnet_span *span, linnet_error *error) {
    if (!LN_HAS_DEVICES) return ln_left_out("linnet_session_bind_device", "LINNET_DEVICES", error);
    if (s == NULL || i < 0 || i >= (output ? s->plan->n_outputs : s->plan->program.n_inputs))
        return ln_fail(error, LINNET_INVALID_ARGUMENT, "the plan has no input or output of this number");
    return bind_port(s, output ? ln_port_of_output(s, i) : i, device, span, error);
}

linnet_status ln_device_bindings_fetch(linnet_session *s, linnet_error *error) {
    const ln_program *p = &s->plan->program;
    linnet_status status = LINNET_OK;
    for (int32_t i = 0; i < p->n_inputs && status == LINNET_OK; ++i) {
        const ln_port *port = &p->inputs[i];
        if (ln_on_cpu(s->device_bindings[i].place) || !s->device_bindings[i].staged) continue;
        void *host = ln_instance_pointer(s, &s->root, &port->operand);
        status = ln_device_move(s, port, &s->device_bindings[i], host, false, error);
    }
    return status;
}

linnet_status ln_device_bindings_store(linnet_session *s, linnet_error *error) {
    const ln_program *p = &s->plan->program;
    linnet_status status = LINNET_OK;
    for (int32_t i = 0; i < p->n_outputs && status == LINNET_OK; ++i) {
        const ln_device_binding *binding = &s->device_bindings[p->n_inputs + i];
        if (ln_on_cpu(binding->place) || !binding->staged) continue;
        void *host = ln_instance_pointer(s, &s->root, &p->outputs[i].operand);
        status = ln_device_move(s, &p->outputs[i], binding, host, true, error);
    }
    return status;
}
