/* worker_gradient.h - the gradients of a step, from a session's outputs or as differences, and their messages. */
#ifndef LN_SYNC_WORKER_GRADIENT_H
#define LN_SYNC_WORKER_GRADIENT_H

#include "sync/worker/worker.h"

/* Finds the gradients in the session's outputs, and sums sparse rows. The outputs must not change until the push is
 * done. */
linnet_status ln_worker_collect(ln_sync_worker *worker, linnet_session *session, linnet_error *error);
/* Computes the gradients as the pulled values minus the current values, after local steps. Needs config.keep_pulled. If
 * the last push failed, the differences still exist and are used again. */
linnet_status ln_worker_differ(ln_sync_worker *worker, linnet_error *error);
/* Makes the messages of the link's parts, and compresses them if this was agreed on. Call one of the functions above
 * before. */
linnet_status ln_worker_encode(worker_link *link, linnet_error *error);

#endif
