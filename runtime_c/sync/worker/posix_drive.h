/* posix_drive.h - moves the bytes of a blocking worker's connections. */
#ifndef LN_SYNC_POSIX_DRIVE_H
#define LN_SYNC_POSIX_DRIVE_H

#include "sync/worker/posix_worker_state.h"

/* Moves bytes until the core has finished the work that was begun. The caller holds `moving`. */
linnet_status ln_worker_drive(linnet_worker *worker, linnet_error *error);
/* Does one round of connecting, receiving and sending. Does not wait. */
void ln_worker_turn(linnet_worker *worker);

#endif
