/* posix_rows.h - pulls the rows of tables that a session looks up. */
#ifndef LN_SYNC_POSIX_ROWS_H
#define LN_SYNC_POSIX_ROWS_H

#include "sync/worker/posix_worker_state.h"

/* posix_rows.c: pulls the rows whose numbers an `ids` session has found, and writes them to the inputs of a `grad`
 * session. */
linnet_status ln_worker_feed_rows(linnet_worker *worker, linnet_session *ids, linnet_session *session,
                                  linnet_error *error);
void ln_worker_free_lookups(linnet_worker *worker);

#endif
