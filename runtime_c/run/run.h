/* run.h - runs a session. */
#ifndef LN_RUN_H
#define LN_RUN_H

#include "plan/session_layout.h"

/* `submits`: as linnet_session_submit, otherwise as linnet_run_with. */
linnet_status ln_run(linnet_session *session, const linnet_run_config *config, bool submits, linnet_error *error);

#endif
