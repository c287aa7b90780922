/* worker_links.h - the life of a link: it is opened, kept alive, ended and restarted. */
#ifndef LN_SYNC_WORKER_LINKS_H
#define LN_SYNC_WORKER_LINKS_H

#include "sync/worker/worker.h"

/* Returns the time of the host's clock in ns. */
uint64_t ln_worker_clock(const ln_sync_worker *worker);
/* Queues a control frame. Returns false if the stream has no room now. */
bool ln_worker_send(worker_link *link, uint8_t type, uint64_t step, const void *payload, size_t size);
/* Makes the link wish to close its connection, for the reason `why`. With `fatal`, the whole worker fails with this
 * error. Does nothing if the link is ending already. */
void ln_worker_end(worker_link *link, const linnet_error *why, bool fatal);
/* Forgets what a lost connection has done for the current task, so that the next connection does all of it again. */
void ln_worker_restart(worker_link *link);
/* Call this when the handshake is done: begins heartbeats and restarts the link's part of the task. */
void ln_worker_opened(worker_link *link);
/* Sends a heartbeat if it is due. Ends the link if the server has been silent for too long. */
void ln_worker_check_time(worker_link *link, uint64_t now);
/* Begins a task on all links. */
void ln_worker_begin(ln_sync_worker *worker, worker_work work);
/* Returns the first step that not all servers have decided for this worker. Servers that are ahead wait for the others.
 */
uint64_t ln_worker_next(const ln_sync_worker *worker);

#endif
