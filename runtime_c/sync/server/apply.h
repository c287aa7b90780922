/* apply.h - implements ln_sync_apply (server.h) for a linnet model: runs its updates as sessions of the `update/...`
 * signatures over one store. A signature with sparse gradients has several sessions, for different numbers of rows,
 * each a power of two. */
#ifndef LN_SYNC_APPLY_H
#define LN_SYNC_APPLY_H

#include "sync/server/server.h"

typedef struct ln_sync_sessions ln_sync_sessions;

/* Plans the sessions. `model`, `store` and `manifest` must stay valid until the sessions are freed. `threads` is the
 * number of threads for updates of large variables; 0: linnet_default_threads(). Errors: those of linnet_plan_create
 * and linnet_session_create. */
linnet_status ln_sync_sessions_create(linnet_model *model, linnet_store *store, const ln_sync_manifest *manifest,
                                      int32_t threads, const linnet_allocator *allocator, ln_sync_sessions **out,
                                      linnet_error *error);
void ln_sync_sessions_free(ln_sync_sessions *sessions);
/* Returns the functions for the server's core. They are valid until the sessions are freed. */
ln_sync_apply ln_sync_sessions_apply(ln_sync_sessions *sessions);

#endif
