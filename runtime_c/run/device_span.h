/* device_span.h - what devices have measured. */
#ifndef LN_RUN_DEVICE_SPAN_H
#define LN_RUN_DEVICE_SPAN_H

#include "plan/session_layout.h"

/* Asks devices for the times of their steps, after a traced run. */
linnet_status ln_device_times(linnet_session *session, ln_instance *instance, linnet_error *error);

#endif
