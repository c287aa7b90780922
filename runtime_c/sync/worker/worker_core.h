/* worker_core.h - a worker's side of the protocol, which talks to the servers of all shards, without sockets. The owner
 * of a worker (posix_worker.c or a simulator) moves bytes between transports and streams. A worker is not thread-safe.
 * Order of calls: create; then, again and again, do what each link wishes, move bytes, and call ln_sync_worker_advance.
 * Tasks begin with the functions ..._begin_..., and end when ln_sync_worker_finished returns true (worker_work.h). */
#ifndef LN_SYNC_WORKER_CORE_H
#define LN_SYNC_WORKER_CORE_H

#include "sync/common/host.h"
#include "sync/worker/worker.h"

/* Creates a worker with `links` links; link i belongs to the server whose address is servers[i]. `config` must be
 * complete and checked (ln_sync_take_worker). `model` and `store` must outlive the worker. Errors: UNKNOWN_NAME (the
 * model is not made for sync), OUT_OF_MEMORY. */
linnet_status ln_sync_worker_create(linnet_model *model, linnet_store *store, const char *const *servers, int links,
                                    const linnet_worker_config *config, const ln_sync_host *host, ln_sync_worker **out,
                                    linnet_error *error);
/* Frees the worker. Free the transports before, because they may still be sending memory of the worker. */
void ln_sync_worker_free(ln_sync_worker *worker);

/* ---- links ------------------------------------------------------------------------------------------------------- */

/* Returns what the owner is to do with the connection of this link now. */
ln_sync_wish ln_sync_worker_wish(const ln_sync_worker *worker, int link);
/* Returns the stream of a link, which belongs to the worker and stays the same. */
ln_net_stream *ln_sync_worker_stream(const ln_sync_worker *worker, int link);
/* Call this when a connection exists or is being established. The function queues HELLO in the stream. */
void ln_sync_worker_connected(ln_sync_worker *worker, int link);
/* Call this when the connection is lost, closed, or could not be established. `why` is the error; NULL if there is
 * none. The function resets the stream. The link wishes to connect again after a while. */
void ln_sync_worker_lost(ln_sync_worker *worker, int link, const linnet_error *why);

#endif
