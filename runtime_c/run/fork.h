/* fork.h - runs the branches of a fork side by side. */
#ifndef LN_FORK_H
#define LN_FORK_H

#include "plan/session_layout.h"

/* Runs the branches of a fork side by side. `traced`: also measures their steps. */
linnet_status ln_run_fork(linnet_session *session, ln_instance *instance, const ln_fork *fork, bool traced,
                          linnet_error *error);

#endif
