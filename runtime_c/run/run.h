/* run.h - runs the steps of an instance, or a whole session. */
#ifndef LN_RUN_H
#define LN_RUN_H

#include "plan/session_layout.h"

/* `submits`: as linnet_session_submit, otherwise as linnet_run_with. */
linnet_status ln_run(linnet_session *session, const linnet_run_config *config, bool submits, linnet_error *error);
/* ln_queues_drain, under the store's lock if others may use the queues. */
linnet_status ln_drain(linnet_session *session, linnet_error *error);
linnet_status ln_run_steps(linnet_session *session, ln_instance *instance, linnet_error *error);

#endif
