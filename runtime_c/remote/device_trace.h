/* device_trace.h - what a host says of the runs of pieces, for sessions that trace them. */
#ifndef LN_REMOTE_DEVICE_TRACE_H
#define LN_REMOTE_DEVICE_TRACE_H

#include "remote/device_state.h"

/* Sets `elapsed` and `span`. */
void ln_remote_trace_functions(linnet_device *functions);
/* Forgets what the host said of a piece, if it said anything. */
void ln_remote_untrace(ln_remote_device *device, linnet_handle piece);

#endif
