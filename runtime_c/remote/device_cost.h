/* device_cost.h - what a plan asks a host before it decides what runs there. */
#ifndef LN_REMOTE_DEVICE_COST_H
#define LN_REMOTE_DEVICE_COST_H

#include "remote/device_state.h"

/* Measures the way to the host, by the control connection. */
linnet_status ln_remote_measure(ln_remote_device *device, linnet_error *error);
/* Sets the functions of planning: limits, cost, offer, claim and about. */
void ln_remote_cost_functions(linnet_device *functions);

#endif
