/* device_variables.h - keeps new values of variables on the device that computed them. */
#ifndef LN_DEVICE_VARIABLES_H
#define LN_DEVICE_VARIABLES_H

#include "plan/session_layout.h"

/* Call this after a successful run and its commit. It keeps the new values of variables on the devices, and notes which
 * values only a device has because the run did not download them. Errors: DEVICE_FAILED (a value that only the device
 * had is lost). */
linnet_status ln_device_commit(linnet_session *session, ln_instance *instance, linnet_error *error);
/* Tells whether this run leaves out a download: the device keeps the value, and the store gets it when it is read. */
bool ln_leaves_out(const linnet_session *session, const ln_instance *instance, const ln_step *step);
/* Tells whether a device of the session has the variable's only value. Needs the store's lock if the session
 * `defers_downloads`. */
bool ln_holds(const linnet_session *session, int32_t variable);
/* Sets `holder` and `defers_downloads`. */
void ln_device_variables_prepare(linnet_session *session);
/* Gives the store the values that only the session's devices have, before the session is freed. */
void ln_device_variables_give(linnet_session *session);

#endif
