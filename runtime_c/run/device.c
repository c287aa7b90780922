/* device.c - devices of extensions during a session. This file manages their memory and constants, and runs their
   steps. plan/devices.c decides which steps run on a device; steps of the CPU call kernels directly (run.c). */
#include "kernel/step.h"
#include "run/session.h"

static linnet_status device_failed(const linnet_device *device, const char *doing, const char *tensor,
                                   linnet_error *error) {
    ln_fail(error, LINNET_DEVICE_FAILED, "device %s failed to %s", device->name, doing);
    ln_at_tensor(error, tensor);
    return ln_hint(error, "plan without this device to run on the CPU");
}

linnet_status ln_device_prepare(linnet_session *s, ln_instance *instance, linnet_error *error) {
    const ln_program *p = instance->program;
    for (int32_t d = 1; d <= p->n_devices; ++d) {
        const linnet_device *device = s->plan->devices[d - 1];
        const ln_device_memory *m = &p->devices[d];
        if (m->arena > 0 && !(instance->device_arenas[d] = device->allocate(device->context, m->arena)))
            return device_failed(device, "allocate its arena", "", error);
        if (m->residents_bytes == 0) continue;
        if (!(instance->residents[d] = device->allocate(device->context, m->residents_bytes)))
            return device_failed(device, "allocate its constants", "", error);
        for (int32_t i = 0; i < m->n_residents; ++i)
            if (device->upload(device->context, (char *)instance->residents[d] + m->residents[i].offset,
                               m->residents[i].host, m->residents[i].size) != 0)
                return device_failed(device, "upload a constant", "", error);
    }
    for (int32_t i = 0; i < p->n_steps; ++i) {
        const ln_step *step = &p->steps[i];
        if (step->kind != LN_STEP_DEVICE) continue;
        const linnet_device *device = s->plan->devices[step->device - 1];
        const linnet_step seen = {.call = &step->call, .name = step->name};
        instance->steps[i].step = step; /* from here on the step must be unprepared */
        if (device->prepare != NULL && device->prepare(device->context, &seen, &instance->steps[i].state) != 0)
            return device_failed(device, "prepare a step", step->name, error);
    }
    return LINNET_OK;
}

void ln_device_release(linnet_session *s, ln_instance *instance) {
    const ln_program *p = instance->program;
    if (p->n_devices == 0 || instance->steps == NULL) return;
    for (int32_t i = 0; i < p->n_steps; ++i) {
        const ln_bound *bound = &instance->steps[i];
        if (bound->step == NULL || bound->step->kind != LN_STEP_DEVICE || bound->state == NULL) continue;
        const linnet_device *device = s->plan->devices[bound->step->device - 1];
        if (device->unprepare != NULL) device->unprepare(device->context, bound->state);
    }
    for (int32_t d = 1; d <= p->n_devices; ++d) {
        const linnet_device *device = s->plan->devices[d - 1];
        if (instance->device_arenas[d] != NULL)
            device->release(device->context, instance->device_arenas[d], p->devices[d].arena);
        if (instance->residents[d] != NULL)
            device->release(device->context, instance->residents[d], p->devices[d].residents_bytes);
    }
}

linnet_status ln_device_step(linnet_session *s, const ln_bound *bound, linnet_error *error) {
    const ln_step *step = bound->step;
    const linnet_device *device = s->plan->devices[step->device - 1];
    const ln_buffers *b = &bound->buffers;
    const linnet_step seen = {.call = &step->call, .name = step->name};
    int failed = 0;
    switch (step->kind) {
    case LN_STEP_UPLOAD: failed = device->upload(device->context, b->outputs[0], b->inputs[0], step->bytes); break;
    case LN_STEP_DOWNLOAD:
        if (device->synchronise != NULL) failed = device->synchronise(device->context);
        if (!failed) failed = device->download(device->context, b->outputs[0], b->inputs[0], step->bytes);
        break;
    default: failed = device->run(device->context, &seen, bound->state, b->inputs, b->outputs); break;
    }
    if (!failed) return LINNET_OK;
    return device_failed(device,
                         step->kind == LN_STEP_UPLOAD     ? "upload"
                         : step->kind == LN_STEP_DOWNLOAD ? "download"
                                                          : "run",
                         step->name, error);
}
