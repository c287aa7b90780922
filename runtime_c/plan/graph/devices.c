/* devices.c - opens devices, allocates their memory, and turns their codes into errors. */
#include "plan/graph/devices.h"

#include <string.h>

static linnet_status is_full(const ln_device *device, const char *doing, const char *step, linnet_error *error) {
    linnet_device_about about = {.struct_size = sizeof about};
    if (device->is.about != NULL && device->is.about(device->is.context, &about) != 0) about.memory = 0;
    const uint64_t bytes = about.memory_free > 0 ? about.memory_free : about.memory;
    ln_fail(error, LINNET_OUT_OF_MEMORY, "device %s has too little memory to %s", device->is.name, doing);
    ln_at_node(error, -1, step);
    if (bytes > 0)
        ln_got(error, "%llu bytes%s", (unsigned long long)bytes, about.memory_free > 0 ? " that are free" : " in all");
    ln_hint(error, "free other sessions on this device, use smaller shapes, or make the plan without this device");
    return LINNET_OUT_OF_MEMORY;
}

linnet_status ln_device_failed(const ln_device *device, int code, const char *doing, const char *step,
                               linnet_error *error) {
    if (code == LINNET_DEVICE_FULL) return is_full(device, doing, step, error);
    const char *text = device->is.explain != NULL ? device->is.explain(device->is.context, code) : NULL;
    ln_fail(error, LINNET_DEVICE_FAILED, "device %s failed to %s", device->is.name, doing);
    ln_at_node(error, -1, step);
    if (text != NULL)
        ln_got(error, "code %d: %s", code, text);
    else
        ln_got(error, "code %d", code);
    return ln_hint(error, "to run on the CPU, make the plan without this device");
}

linnet_status ln_device_open(const linnet_device *from, ln_device *to, linnet_error *error) {
    const size_t least = offsetof(linnet_device, run) + sizeof from->run;
    memset(to, 0, sizeof *to);
    bool good = from != NULL && from->struct_size >= least && from->version == LINNET_DEVICE_VERSION;
    if (good) {
        memcpy(&to->is, from, from->struct_size < sizeof to->is ? from->struct_size : sizeof to->is);
        const linnet_device *d = &to->is;
        good = d->name != NULL && d->limits && d->cost && d->allocate && d->release && d->open && d->close &&
               d->finish && d->create_event && d->free_event && d->record && d->wait && d->upload && d->download &&
               d->run && !d->prepare == !d->unprepare && !d->propose == !d->accept &&
               !d->propose == !(d->layout_bytes || d->describe) && !d->map == !d->unmap &&
               !d->host_acquire == !d->host_release && !d->allocate_host == !d->release_host && !d->keep == !d->recall;
    }
    if (!good) {
        ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_plan_config.devices has an incomplete device");
        ln_expected(error, "version %d, and all required functions", LINNET_DEVICE_VERSION);
        return ln_hint(error, "build the device with the linnet_device.h of this library");
    }
    to->origin = from;
    to->limits.struct_size = sizeof to->limits;
    const int code = to->is.limits(to->is.context, &to->limits);
    if (code != 0) return ln_device_failed(to, code, "report its limits", "", error);
    if (to->limits.alignment < LN_ALIGNMENT) to->limits.alignment = LN_ALIGNMENT;
    if (to->limits.import_alignment < LN_ALIGNMENT) to->limits.import_alignment = LN_ALIGNMENT;
    to->limits.host_visible = to->limits.host_visible && to->is.map != NULL;
    to->limits.shared = to->limits.shared && to->is.import != NULL &&
                        (to->limits.import_alignment <= LN_ALIGNMENT || to->is.allocate_host != NULL);
    return LINNET_OK;
}

linnet_status ln_device_allocate(const ln_device *device, uint64_t bytes, linnet_handle *buffer, linnet_error *error) {
    const int code = device->is.allocate(device->is.context, bytes, buffer);
    if (code == 0) return LINNET_OK;
    const linnet_status status = ln_device_failed(device, code, "allocate memory", "", error);
    ln_expected(error, "%llu bytes", (unsigned long long)bytes);
    return status;
}
