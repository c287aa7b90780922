/* device_span.c - what a device has measured: the time of its steps, and what happened inside of them. */
#include "run/device_span.h"

#include "base/error.h"
#include "base/structs.h"

linnet_status linnet_session_get_span(const linnet_session *s, int i, int number, linnet_device_span *out) {
    linnet_device_span span = {.struct_size = sizeof span};
    if (!LN_HAS_DEVICES) return ln_left_out("linnet_session_get_span", "LINNET_DEVICES", NULL);
    if (s == NULL || i < 0 || i >= s->plan->program.n_steps || number < 0) return LINNET_INVALID_ARGUMENT;
    const ln_step *step = &s->plan->program.steps[i];
    if (!s->trace || step->claim == NULL) return LINNET_INVALID_ARGUMENT;
    const linnet_device *device = &s->plan->devices[step->device - 1].is;
    const ln_resolved_claim *claim = &s->root.on_devices.claims[step->claim->number];
    if (device->span == NULL || device->span(device->context, &claim->work, claim->state, number, &span) != 0 ||
        span.name == NULL)
        return LINNET_INVALID_ARGUMENT;
    return LN_GIVE(linnet_device_span, waited_bytes, &span, out);
}

linnet_status ln_device_times(linnet_session *s, ln_instance *instance, linnet_error *error) {
    const ln_program *p = instance->program;
    for (int32_t i = 0; i < p->n_steps; ++i) {
        const ln_step *step = &p->steps[i];
        const ln_device *device = step->claim != NULL ? &s->plan->devices[step->device - 1] : NULL;
        if (device == NULL || device->is.elapsed == NULL) continue;
        const ln_resolved_claim *claim = &instance->on_devices.claims[step->claim->number];
        uint64_t ns = 0;
        const int code = device->is.elapsed(device->is.context, &claim->work, claim->state, &ns);
        if (code != 0) return ln_device_failed(device, code, "report the time of a step", step->name, error);
        instance->trace[i].device_ns += ns;
        /* The loops and branches around the step. */
        for (const ln_instance *at = instance; at->outer != NULL; at = at->outer)
            at->outer->trace[at->runner - at->outer->steps].device_ns += ns;
    }
    return LINNET_OK;
}
