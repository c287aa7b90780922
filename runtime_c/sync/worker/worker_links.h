/* worker_links.h - the life of a link: opened, alive, ended, restarted. */
#ifndef LN_SYNC_WORKER_LINKS_H
#define LN_SYNC_WORKER_LINKS_H

#include "sync/worker/worker.h"

/* worker_links.c */
uint64_t ln_worker_clock(const ln_sync_worker *worker);
bool ln_worker_send(worker_link *link, uint8_t type, uint64_t step, const void *payload, size_t size);
/* Ends this connection soon. With `fatal`, ends the whole worker. */
void ln_worker_end(worker_link *link, const linnet_error *why, bool fatal);
/* Restarts the work that a lost connection had not finished. */
void ln_worker_restart(worker_link *link);
void ln_worker_opened(worker_link *link); /* the handshake is done: begins heartbeats and continues the work */
/* Sends heartbeats and notices silent servers. */
void ln_worker_check_time(worker_link *link, uint64_t now);
void ln_worker_begin(ln_sync_worker *worker, worker_work work);
/* Returns the first step that no server has decided for this worker. Shards that are further ahead wait for the other
 * shards. */
uint64_t ln_worker_next(const ln_sync_worker *worker);

#endif
