/* run.h - runs a session. */
#ifndef LN_RUN_H
#define LN_RUN_H

#include "plan/session_layout.h"

/* Runs the session: with `submits`, like linnet_session_submit, otherwise like linnet_run_with. */
linnet_status ln_run(linnet_session *session, const linnet_run_config *config, bool submits, linnet_error *error);

#endif
