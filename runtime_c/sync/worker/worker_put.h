/* worker_put.h - the task that sets the value of a variable at its servers, and a link's part of it. */
#ifndef LN_SYNC_WORKER_PUT_H
#define LN_SYNC_WORKER_PUT_H

#include "sync/worker/worker.h"

/* Begins to set the value of a variable. `data` has the whole value, and must not change until the task is finished.
 * On an error, no task is begun. */
linnet_status ln_sync_worker_begin_put(ln_sync_worker *worker, const char *name, const void *data, size_t bytes,
                                       linnet_error *error);

/* Sends the link's part of the value, if its server has a part. Called again when the stream has room. */
void ln_worker_put(worker_link *link);
/* Handles the message STORED. worker_core.c says when this function is called. */
ln_net_refusal ln_worker_take_stored(worker_link *link, const ln_net_header *header, const void *payload);
/* Completes the task when all servers have answered. */
linnet_status ln_worker_was_put(ln_sync_worker *worker, linnet_error *error);

#endif
