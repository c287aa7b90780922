/* device_kept.c - variables that a host keeps in its folder, for a device with the option keep=on. */
#include "remote/device_kept.h"

#include "net/bytes.h"
#include "net/error.h"
#include "remote/sha256.h"

#include <string.h>

static int add(ln_remote_queue *queue, ln_remote_code code, const char *variable, uint64_t number,
               const linnet_span *span) {
    unsigned char name[LN_SHA256];
    ln_remote_batch *batch = ln_remote_queue_batch(queue);
    ln_sha256(variable, strlen(variable), name);
    const uint64_t numbers[] = {get64(name), get64(name + 8), number, span->buffer, span->offset, span->bytes};
    ln_remote_add(batch, code, numbers, 0);
    return batch->failed ? (int)LINNET_DEVICE_FULL : 0;
}

static int keep(void *context, linnet_handle queue, const char *variable, uint64_t number, const linnet_span *from) {
    (void)context;
    return add((ln_remote_queue *)(uintptr_t)queue, LN_REMOTE_KEEP, variable, number, from);
}

static int recall(void *context, linnet_handle queue, const char *variable, uint64_t number, const linnet_span *to) {
    (void)context;
    return add((ln_remote_queue *)(uintptr_t)queue, LN_REMOTE_RECALL, variable, number, to);
}

linnet_status ln_remote_kept_functions(ln_remote_device *d, linnet_error *error) {
    if (!d->place.keep) return LINNET_OK;
    if (!d->welcome.keeps) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "the host at %s keeps nothing, because it has no folder",
                     d->place.address);
        return ln_sync_hint(error, "start linnet-host with --folder, or leave out keep=on");
    }
    d->functions.keep = keep;
    d->functions.recall = recall;
    return LINNET_OK;
}
