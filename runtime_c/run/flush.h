/* flush.h - tells devices to begin what was submitted to them. */
#ifndef LN_FLUSH_H
#define LN_FLUSH_H

#include "plan/session_layout.h"

/* Submits a transfer or a claim, or waits. After the last submission before the host does something else, tells all
 * devices to begin. */
linnet_status ln_device_submit(linnet_session *session, ln_instance *instance, const ln_resolved_step *resolved,
                               linnet_error *error);

#endif
