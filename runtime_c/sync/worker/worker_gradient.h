/* worker_gradient.h - the gradients of a step, from a session's outputs or as differences, and their messages. */
#ifndef LN_SYNC_WORKER_GRADIENT_H
#define LN_SYNC_WORKER_GRADIENT_H

#include "sync/worker/worker.h"

/* worker_gradient.c: the gradients of a step, from a session's outputs or as differences, and their messages. */
linnet_status ln_worker_collect(ln_sync_worker *worker, linnet_session *session, linnet_error *error);
linnet_status ln_worker_differ(ln_sync_worker *worker, linnet_error *error);
linnet_status ln_worker_encode(worker_link *link, linnet_error *error);

#endif
