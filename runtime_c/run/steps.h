/* steps.h - runs the steps of an instance. */
#ifndef LN_RUN_STEPS_H
#define LN_RUN_STEPS_H

#include "plan/session_layout.h"

/* Chooses how the session runs steps: whether it measures them, and whether devices own the memory of inputs and
 * outputs while the steps run. The session's queues must already be open. */
void ln_choose_steps(linnet_session *session);
linnet_status ln_run_steps(linnet_session *session, ln_instance *instance, linnet_error *error);

#endif
