/* store_lock.h - the store's lock during a run. */
#ifndef LN_RUN_STORE_LOCK_H
#define LN_RUN_STORE_LOCK_H

#include "plan/session_layout.h"

/* Locks the store, unless the run ends before, and gets the values that other sessions hold. The caller unlocks it.
 * Errors: CANCELLED, DEADLINE_EXCEEDED, and those of a device. */
linnet_status ln_lock_for_run(linnet_session *session, linnet_error *error);

#endif
