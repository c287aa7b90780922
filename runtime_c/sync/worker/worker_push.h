/* worker_push.h - pushes the gradients of a step; a link's share of it. */
#ifndef LN_SYNC_WORKER_PUSH_H
#define LN_SYNC_WORKER_PUSH_H

#include "sync/worker/worker.h"

/* session NULL: pushes the changes that local steps have made. pull: also pulls new values afterwards. */
linnet_status ln_sync_worker_begin_push(ln_sync_worker *worker, linnet_session *session, double weight, bool pull,
                                        linnet_error *error);

/* worker_push.c */
void ln_worker_push(worker_link *link);
void ln_worker_released(worker_link *link);
void ln_worker_pushed(ln_sync_worker *worker);

#endif
