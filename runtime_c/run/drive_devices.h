/* drive_devices.h - runs sessions with devices. */
#ifndef LN_RUN_DRIVE_DEVICES_H
#define LN_RUN_DRIVE_DEVICES_H

#include "plan/session_layout.h"

/* Runs the session. submits: skips the waits at the end of the program; the caller waits later (ln_drain). */
linnet_status ln_run_with_devices(linnet_session *session, bool submits, linnet_error *error);
/* Calls ln_queues_drain, under the store's lock if other sessions may use the queues. */
linnet_status ln_drain(linnet_session *session, linnet_error *error);

#endif
