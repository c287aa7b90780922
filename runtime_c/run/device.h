/* device.h - devices during a session: queues, memory, and the steps of devices. */
#ifndef LN_DEVICE_H
#define LN_DEVICE_H

#include "plan/session_layout.h"

/* Opens the session's queues; the caller closes them with ln_queues_close, also after an error. */
linnet_status ln_queues_open(linnet_session *session, linnet_error *error);
void ln_queues_close(linnet_session *session);
/* Waits until the queues are empty, after a failed run or before objects are freed. */
void ln_queues_finish(linnet_session *session);
/* Cleans up after a failed run: marks the copies of variables on devices as outdated, in `last` and the instances
 * before it, and empties the queues. If the caller has ended the run (`ended`), the queues are not emptied now, but by
 * the next run or when objects are freed. */
void ln_queues_abandon(linnet_session *session, ln_instance *last, bool ended);
/* Waits until the work that earlier runs have left in the queues is complete. Errors: those of a wait, CANCELLED,
 * DEADLINE_EXCEEDED. */
linnet_status ln_queues_drain(linnet_session *session, linnet_error *error);
/* Gives the memory of the instance's inputs and outputs to the devices that read it in place, and gets it back after
 * all work that was submitted before. For sessions with `releases_io`. Errors: DEVICE_FAILED. */
linnet_status ln_device_release_io(linnet_session *session, ln_instance *instance, linnet_error *error);
linnet_status ln_device_acquire_io(linnet_session *session, ln_instance *instance, linnet_error *error);
/* Transfers between the caller's memory on the host and the memory of a device, and waits for the transfer. */
linnet_status ln_device_move(linnet_session *session, const ln_port *port, const ln_device_binding *binding, void *host,
                             bool to_device, linnet_error *error);
/* Makes the instance's objects on devices, and frees them. */
linnet_status ln_device_prepare(linnet_session *session, ln_instance *instance, linnet_error *error);
void ln_device_release(linnet_session *session, ln_instance *instance);
/* If a device has refused to prepare a step, notes that, so that the plan is made again. Returns `status`,
 * or OUT_OF_MEMORY. */
linnet_status ln_note_refused(linnet_session *session, struct ln_refusals *refusals, linnet_status status,
                              linnet_error *error);
/* Submits a transfer or a claim, or waits. */
linnet_status ln_device_step(linnet_session *session, ln_instance *instance, const ln_resolved_step *resolved,
                             linnet_error *error);

#endif
