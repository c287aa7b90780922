/* bind_device.h - memory of a device in place of a session's inputs and outputs. */
#ifndef LN_BIND_DEVICE_H
#define LN_BIND_DEVICE_H

#include "plan/session_layout.h"

/* Fetch the staged inputs from bound memory of devices before a run, and store the staged outputs there after the run.
 * Errors: DEVICE_FAILED. */
linnet_status ln_device_bindings_fetch(linnet_session *session, linnet_error *error);
linnet_status ln_device_bindings_store(linnet_session *session, linnet_error *error);
/* Ends the binding of device memory to port i. */
void ln_device_binding_clear(linnet_session *session, int32_t i);

#endif
