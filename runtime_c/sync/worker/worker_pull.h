/* worker_pull.h - the tasks that pull values and rows, and a link's part of them. */
#ifndef LN_SYNC_WORKER_PULL_H
#define LN_SYNC_WORKER_PULL_H

#include "sync/worker/worker.h"

/* Begins to pull the newest values of all tensors into the store. linnet_sync.h lists the errors of the tasks. */
void ln_sync_worker_begin_pull(ln_sync_worker *worker);
/* Begins to pull rows of tables. `tables` and what it points to must stay valid until the task is finished. Errors:
 * UNKNOWN_NAME, INDEX_OUT_OF_RANGE; no task is then begun. */
linnet_status ln_sync_worker_begin_rows(ln_sync_worker *worker, const ln_sync_request *tables, int count,
                                        linnet_error *error);

/* Tells whether the store has the newest values that the servers have named in their last answers. */
bool ln_sync_worker_fresh(const ln_sync_worker *worker);

/* Ask a link's server for values or for rows. They are called again when the stream has room or something has arrived.
 */
void ln_worker_ask(worker_link *link);
void ln_worker_ask_rows(worker_link *link);
/* Call this when the server is going to send the value of every tensor, or SAME, without being asked. */
void ln_worker_await(worker_link *link);
/* Handle the messages DATA and SAME. worker_core.c says when these functions are called. */
ln_net_refusal ln_worker_place_data(worker_link *link, const ln_net_header *header, void **destination);
ln_net_refusal ln_worker_take_data(worker_link *link, const ln_net_header *header, const void *payload);
ln_net_refusal ln_worker_take_same(worker_link *link, const ln_net_header *header, const void *payload);
/* Completes the task when all links have all values. */
void ln_worker_pulled(ln_sync_worker *worker);

#endif
