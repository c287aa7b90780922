/* kept_variables.h - values of variables that a device keeps where they survive the device (linnet_device.keep). */
#ifndef LN_RUN_KEPT_VARIABLES_H
#define LN_RUN_KEPT_VARIABLES_H

#include "plan/session_layout.h"

/* Call this after the last step of a run and before its commit. Each device that can keeps the new values that the run
 * leaves there. Errors: DEVICE_FAILED. */
linnet_status ln_keep_new_values(linnet_session *session, ln_instance *instance, linnet_error *error);
/* Call this for a value that the session had on a device and cannot fetch. If the device has kept it, the store fetches
 * it from the device later; if not, it is lost. Returns whether it was kept. Needs the exclusive lock. */
bool ln_lose_or_keep(linnet_session *session, uint8_t place, int32_t variable);

#endif
