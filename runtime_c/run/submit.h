/* submit.h - runs whose end the caller waits for later. */
#ifndef LN_SUBMIT_H
#define LN_SUBMIT_H

#include "plan/session_layout.h"

/* Finds out whether and how runs of the session can be submitted. The session's queues must be open. */
void ln_submit_prepare(linnet_session *session);

#endif
