/* device.h - a host as a device of linnet_device.h. */
#ifndef LN_REMOTE_DEVICE_H
#define LN_REMOTE_DEVICE_H

#include "remote/device_state.h"

/* Connects to the host at `place`, and makes a device of it, which lives until the process ends. The device owns a copy
 * of `place`. NULL: `error` says why. */
const linnet_device *ln_remote_device_new(const linnet_host *host, const ln_remote_place *place, linnet_error *error);

#endif
