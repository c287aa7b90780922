/* worker_work.h - the work that involves all links: a worker does one thing at a time. */
#ifndef LN_SYNC_WORKER_WORK_H
#define LN_SYNC_WORKER_WORK_H

#include "sync/worker/worker.h"

/* Handles heartbeats, silent servers, and work that waits for room in a stream. Call it after bytes were moved, and at
 * the deadline. */
void ln_sync_worker_advance(ln_sync_worker *worker);
/* Ends the current call with TIMED_OUT, because of a signal. */
void ln_sync_worker_interrupt(ln_sync_worker *worker);
/* Returns the latest time of the next call of ln_sync_worker_advance. */
uint64_t ln_sync_worker_deadline(const ln_sync_worker *worker);

/* ---- what a worker does: one thing at a time ------------------------------------------------------------------
 * These functions begin a task. It is done when ln_sync_worker_finished returns true. */

/* Begins the handshakes with all servers. */
void ln_sync_worker_begin_agreement(ln_sync_worker *worker);
void ln_sync_worker_begin_save(ln_sync_worker *worker);
/* Sends BYE. The task is finished when BYE is sent. */
void ln_sync_worker_begin_leave(ln_sync_worker *worker);
/* Returns true when the task is done or given up, and fills *status and `error`. Before that, the store and the outputs
 * of the session must not change. */
bool ln_sync_worker_finished(ln_sync_worker *worker, linnet_status *status, linnet_error *error);

#endif
