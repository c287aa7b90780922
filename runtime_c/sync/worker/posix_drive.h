/* posix_drive.h - moves the bytes of a blocking worker's connections. The caller of both functions has worker->moving.
 */
#ifndef LN_SYNC_POSIX_DRIVE_H
#define LN_SYNC_POSIX_DRIVE_H

#include "sync/worker/posix_worker_state.h"

/* Moves bytes until the core has finished the task that was begun, and returns the result of the task. */
linnet_status ln_worker_drive(linnet_worker *worker, linnet_error *error);
/* Does one round of connecting, receiving and sending, without waiting. */
void ln_worker_turn(linnet_worker *worker);

#endif
