/* device_variables.h - new values of variables that stay on the device which has computed them. */
#ifndef LN_DEVICE_VARIABLES_H
#define LN_DEVICE_VARIABLES_H

#include "plan/session_layout.h"

/* After a successful run, and its commit: the devices keep the new values of variables, and hold those whose
 * downloads were left out. Errors: DEVICE_FAILED (such a value is lost). */
linnet_status ln_device_commit(linnet_session *session, ln_instance *instance, linnet_error *error);
/* Tells whether this run leaves out a download: the device keeps the value, and the store gets it when it is read. */
bool ln_leaves_out(const linnet_session *session, const ln_instance *instance, const ln_step *step);
/* Tells whether a device of the session has the variable's only value. Needs the store's lock if the session
 * `defers_downloads`. */
bool ln_holds(const linnet_session *session, int32_t variable);
/* Sets `holder` and `defers_downloads`. */
void ln_device_variables_prepare(linnet_session *session);
/* The store gets the values that the session holds, which is about to be freed. */
void ln_device_variables_give(linnet_session *session);

#endif
