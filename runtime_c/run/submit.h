/* submit.h - runs whose end the caller waits for later. */
#ifndef LN_SUBMIT_H
#define LN_SUBMIT_H

#include "plan/session_layout.h"

/* Whether and how runs can be submitted; the session has its queues. */
void ln_submit_prepare(linnet_session *session);

#endif
