/* worker_pull.h - pulls values and rows; a link's share of it. */
#ifndef LN_SYNC_WORKER_PULL_H
#define LN_SYNC_WORKER_PULL_H

#include "sync/worker/worker.h"

/* Pulls the newest values of all tensors. linnet_sync.h lists the errors of these functions. */
void ln_sync_worker_begin_pull(ln_sync_worker *worker);
linnet_status ln_sync_worker_begin_rows(ln_sync_worker *worker, const ln_sync_request *tables, int count,
                                        linnet_error *error);

/* Tells whether the store has the newest values that the servers mentioned in their last answer. */
bool ln_sync_worker_fresh(const ln_sync_worker *worker);

/* worker_pull.c: a link's share of the work; called again when a stream has room or something has arrived. */
void ln_worker_ask(worker_link *link);
void ln_worker_ask_rows(worker_link *link);
void ln_worker_await(worker_link *link); /* for every tensor, the value or a report that it is unchanged will arrive */
void ln_worker_pulled(ln_sync_worker *worker);

#endif
