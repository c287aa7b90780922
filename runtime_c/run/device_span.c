/* device_span.c - what a device has measured inside of a step. */
#include "run/device.h"

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
