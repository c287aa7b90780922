/* device_kept.h - variables that a host keeps in its folder. */
#ifndef LN_REMOTE_DEVICE_KEPT_H
#define LN_REMOTE_DEVICE_KEPT_H

#include "remote/device_state.h"

/* Adds the functions to a device with the option keep=on. Errors: INVALID_ARGUMENT (the host has no folder). */
linnet_status ln_remote_kept_functions(ln_remote_device *d, linnet_error *error);

#endif
