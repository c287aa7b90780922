/* drive_devices.c - runs sessions with devices from beginning to end. The queues of devices may still have work of
 * earlier runs, and memory of devices may be bound to inputs and outputs. */
#include "run/drive_devices.h"

#include "model/store.h"
#include "run/bind_device.h"
#include "run/device.h"
#include "run/drive.h"
#include "run/device_variables.h"
#include "run/kept_variables.h"
#include "run/store_lock.h"

linnet_status ln_drain(linnet_session *s, linnet_error *error) {
    linnet_status status = s->defers_downloads ? ln_lock_for_run(s, error) : LINNET_OK;
    if (status != LINNET_OK) return status;
    status = ln_queues_drain(s, error);
    if (s->defers_downloads) ln_store_unlock(s->store);
    return status;
}

/* Ends a run in which devices took part: commits new values, or leaves the run pending, or cleans up after a
 * failure. */
static linnet_status end_on_devices(linnet_session *s, ln_instance *instance, linnet_status status,
                                    linnet_error *error) {
    if (status != LINNET_OK)
        ln_queues_abandon(s, instance, status == LINNET_CANCELLED || status == LINNET_DEADLINE_EXCEEDED);
    else if (s->skipped == 0)
        status = ln_device_commit(s, instance, error);
    else if (s->refreshed) /* the queue may still read the variable, which other sessions may write as soon as this
                              function returns */
        status = ln_queues_drain(s, error);
    else
        s->pending = true;
    return status;
}

linnet_status ln_run_with_devices(linnet_session *s, bool submits, linnet_error *error) {
    ln_instance *last = &s->root;
    linnet_status status = s->pending && !(submits && s->stacks) ? ln_drain(s, error) : LINNET_OK;
    if (status == LINNET_OK) status = ln_run_begin(s, error);
    if (status != LINNET_OK) return status;
    s->skipped = submits && !s->staged ? s->waits : 0;
    s->refreshed = false;
    if (s->staged) status = ln_device_bindings_fetch(s, error);
    if (status == LINNET_OK) status = ln_run_segments(s, &last, error);
    if (status == LINNET_OK && s->staged) status = ln_device_bindings_store(s, error);
    if (status == LINNET_OK && s->exclusive) status = ln_keep_new_values(s, last, error);
    if (status == LINNET_OK && s->exclusive) ln_run_commit(s, last);
    status = end_on_devices(s, last, status, error);
    ln_run_end(s);
    return status;
}
