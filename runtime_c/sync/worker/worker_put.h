/* worker_put.h - sets the value of a variable at its servers. */
#ifndef LN_SYNC_WORKER_PUT_H
#define LN_SYNC_WORKER_PUT_H

#include "sync/worker/worker.h"

/* Sets the value of a variable at its servers. `data` must stay as it is until the task is finished. */
linnet_status ln_sync_worker_begin_put(ln_sync_worker *worker, const char *name, const void *data, size_t bytes,
                                       linnet_error *error);

/* worker_put.c */
void ln_worker_put(worker_link *link);
linnet_status ln_worker_was_put(ln_sync_worker *worker, linnet_error *error);

#endif
