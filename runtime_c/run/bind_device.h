/* bind_device.h - memory of a device in place of a session's inputs and outputs. */
#ifndef LN_BIND_DEVICE_H
#define LN_BIND_DEVICE_H

#include "plan/session_layout.h"

/* Fetches bound inputs of devices into the session's memory before a run, and stores outputs after it.
 * Only of those that are staged. Errors: DEVICE_FAILED. */
linnet_status ln_device_bindings_fetch(linnet_session *session, linnet_error *error);
linnet_status ln_device_bindings_store(linnet_session *session, linnet_error *error);
/* Nothing of a device is bound to port i any more. */
void ln_device_binding_clear(linnet_session *session, int32_t i);

#endif
