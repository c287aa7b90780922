/* posix_rows.h - pulls the rows of tables that a session looks up. */
#ifndef LN_SYNC_POSIX_ROWS_H
#define LN_SYNC_POSIX_ROWS_H

#include "sync/worker/posix_worker_state.h"

/* Pulls the rows whose numbers the outputs of an `ids` session have, and writes these rows to the inputs of `session`,
 * a `grad` session. Blocks until all rows have come. */
linnet_status ln_worker_feed_rows(linnet_worker *worker, linnet_session *ids, linnet_session *session,
                                  linnet_error *error);
/* Frees the memory that lookups use again and again. */
void ln_worker_free_lookups(linnet_worker *worker);

#endif
