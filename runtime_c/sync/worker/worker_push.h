/* worker_push.h - the task that pushes the gradients of a step, and a link's part of it. */
#ifndef LN_SYNC_WORKER_PUSH_H
#define LN_SYNC_WORKER_PUSH_H

#include "sync/worker/worker.h"

/* Begins to push the gradients in the session's outputs; if `session` is NULL, the changes that local steps have made.
 * The outputs must not change until the task is finished. `weight` is the weight of the gradients in the mean. With
 * `pull`, the task also pulls the new values. On an error, no task is begun. */
linnet_status ln_sync_worker_begin_push(ln_sync_worker *worker, linnet_session *session, double weight, bool pull,
                                        linnet_error *error);

/* Sends the link's messages and COMMIT, as far as the stream has room. Called again when there is room. */
void ln_worker_push(worker_link *link);
/* Called when the stream has released a message of the link. */
void ln_worker_released(worker_link *link);
/* Handles the message ACK. worker_core.c says when this function is called. */
ln_net_refusal ln_worker_take_ack(worker_link *link, const ln_net_header *header, const void *payload);
/* Completes the task when all servers have answered. */
void ln_worker_pushed(ln_sync_worker *worker);

#endif
