/* flush.c - tells devices to begin what was submitted to them. A device that collects work, to send it as one message,
 * gets this call once for all submissions that follow each other. */
#include "run/flush.h"

#include "run/device.h"

static bool submits(const ln_step *step) {
    return step->kind >= LN_STEP_UPLOAD && step->kind <= LN_STEP_DEVICE && step->kind != LN_STEP_WAIT;
}

static linnet_status flush(linnet_session *s, const ln_step *step, linnet_error *error) {
    for (int32_t d = 0; d < s->plan->n_devices; ++d) {
        const ln_device *device = &s->plan->devices[d];
        if (!s->queues[d].busy || device->is.flush == NULL) continue;
        const int code = device->is.flush(device->is.context, s->queues[d].queue);
        if (code != 0) return ln_device_failed(device, code, "begin what was submitted", step->name, error);
    }
    return LINNET_OK;
}

linnet_status ln_device_submit(linnet_session *s, ln_instance *instance, const ln_resolved_step *resolved,
                               linnet_error *error) {
    const linnet_status status = ln_device_step(s, instance, resolved, error);
    const ln_resolved_step *next = resolved + 1, *end = instance->steps + instance->program->n_steps;
    if (status != LINNET_OK || !submits(resolved->step) || (next < end && submits(next->step))) return status;
    return flush(s, resolved->step, error);
}
