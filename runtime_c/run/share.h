/* share.h - shares the work items of a step among threads. */
#ifndef LN_SHARE_H
#define LN_SHARE_H

#include "plan/session_layout.h"

/* Runs a phase of a step on `count` threads. */
linnet_status ln_run_parallel(linnet_session *session, ln_resolved_step *resolved, int phase, int count);

#endif
