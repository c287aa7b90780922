/* worker_work.h - the tasks of a worker, which involve all of its links. A worker does one task at a time. */
#ifndef LN_SYNC_WORKER_WORK_H
#define LN_SYNC_WORKER_WORK_H

#include "sync/worker/worker.h"

/* Continues the task where it waits for room in a stream, sends heartbeats, and notices silent servers. Call this after
 * bytes were moved, and at the deadline. */
void ln_sync_worker_advance(ln_sync_worker *worker);
/* Makes the current task end with TIMED_OUT, because of a signal. */
void ln_sync_worker_interrupt(ln_sync_worker *worker);
/* Returns the time at which ln_sync_worker_advance must be called again at the latest. */
uint64_t ln_sync_worker_deadline(const ln_sync_worker *worker);

/* ---- tasks -----------------------------------------------------------------------------------------------------
 * The functions ..._begin_... begin a task, here and in worker_pull.h, worker_push.h and worker_put.h. The task is
 * finished when ln_sync_worker_finished returns true. The last task must be finished before the next one begins. */

/* Begins the handshakes with all servers. */
void ln_sync_worker_begin_agreement(ln_sync_worker *worker);
/* Asks all servers to make a snapshot. */
void ln_sync_worker_begin_save(ln_sync_worker *worker);
/* Sends BYE to all servers. The task is finished when BYE is sent, or after a second. No task may follow. */
void ln_sync_worker_begin_leave(ln_sync_worker *worker);
/* Returns true when the task is finished or given up, and sets *status and, if there is one, `error`. Until then, the
 * caller must not change the store, the outputs of the session, and the data of the task. */
bool ln_sync_worker_finished(ln_sync_worker *worker, linnet_status *status, linnet_error *error);

#endif
