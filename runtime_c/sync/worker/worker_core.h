/* worker_core.h - a worker's side of the protocol, which talks to the servers of all shards; without sockets. Its owner
 * moves bytes between transports and streams, and passes the time. The owner is posix_worker.c or a simulator. */
#ifndef LN_SYNC_WORKER_CORE_H
#define LN_SYNC_WORKER_CORE_H

#include "sync/common/host.h"
#include "sync/worker/worker.h"

/* `servers` are names for error messages; link i belongs to servers[i]. `config` is complete and checked. Errors:
 * UNKNOWN_NAME (the model is not made for sync), OUT_OF_MEMORY. */
linnet_status ln_sync_worker_create(linnet_model *model, linnet_store *store, const char *const *servers, int links,
                                    const linnet_worker_config *config, const ln_sync_host *host, ln_sync_worker **out,
                                    linnet_error *error);
/* Frees the worker. Close the transports first, because their streams may still be sending memory of the worker. */
void ln_sync_worker_free(ln_sync_worker *worker);

/* ---- links ------------------------------------------------------------------------------------------------------- */

ln_sync_wish ln_sync_worker_wish(const ln_sync_worker *worker, int link);
ln_net_stream *ln_sync_worker_stream(const ln_sync_worker *worker, int link);
/* Call this when a connection exists, or is being established. Queues the greeting in the stream. */
void ln_sync_worker_connected(ln_sync_worker *worker, int link);
/* Call this when the connection is lost, or could not be established. `why` may be NULL. Resets the stream. */
void ln_sync_worker_lost(ln_sync_worker *worker, int link, const linnet_error *why);

#endif
