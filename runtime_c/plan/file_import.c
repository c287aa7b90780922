/* file_import.c - the model's file as a buffer of a device that can read memory of the host. Steps of the device then
 * read constants where they are, and no copy is allocated. Plans of a model share the buffer; the last one frees it. */
#include "plan/file_import.h"

#include "base/platform_locks.h"

/* Called under the model's lock. */
static ln_device *find(const linnet_model *model, const linnet_device *origin) {
    ln_device *at = model->file_imports;
    while (at != NULL && at->origin != origin) at = at->next;
    return at;
}

void ln_device_take_file(linnet_model *model, ln_device *device) {
    const uint64_t step = device->limits.import_alignment;
    const uintptr_t begin = (uintptr_t)model->file, end = begin + model->file_size;
    const uintptr_t first = (begin + (uintptr_t)step - 1) & ~(uintptr_t)(step - 1), last = end & ~(uintptr_t)(step - 1);
    if (device->is.import_constants == NULL || first >= last) return;
    ln_lock_exclusive(&model->lock);
    const ln_device *same = find(model, device->origin);
    bool taken = same != NULL;
    if (taken)
        device->file = same->file;
    else
        taken = device->is.import_constants(device->is.context, (const void *)first, last - first, &device->file) == 0;
    if (taken) {
        device->file_at = first;
        device->file_bytes = last - first;
        device->next = model->file_imports;
        model->file_imports = device;
    }
    ln_unlock(&model->lock);
}

void ln_device_give_file(linnet_model *model, ln_device *device) {
    if (device->file_bytes == 0) return;
    ln_lock_exclusive(&model->lock);
    ln_device **at = &model->file_imports;
    while (*at != device) at = &(*at)->next;
    *at = device->next;
    if (find(model, device->origin) == NULL) device->is.release(device->is.context, device->file, device->file_bytes);
    ln_unlock(&model->lock);
}
