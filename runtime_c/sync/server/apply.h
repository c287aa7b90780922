/* apply.h - runs the updates of a linnet model, as sessions of its `update/...` signatures over one store.
 * A signature with sparse gradients has several sessions for different numbers of rows, each a power of two. */
#ifndef LN_SYNC_APPLY_H
#define LN_SYNC_APPLY_H

#include "sync/server/server.h"

typedef struct ln_sync_sessions ln_sync_sessions;

/* `model`, `store` and `manifest` must stay valid until the sessions are freed. threads: number of threads for updates
 * of large variables; 0: linnet_default_threads(). Errors: those of linnet_plan_create and linnet_session_create. */
linnet_status ln_sync_sessions_create(linnet_model *model, linnet_store *store, const ln_sync_manifest *manifest,
                                      int32_t threads, const linnet_allocator *allocator, ln_sync_sessions **out,
                                      linnet_error *error);
void ln_sync_sessions_free(ln_sync_sessions *sessions);
ln_sync_apply ln_sync_sessions_apply(ln_sync_sessions *sessions);

#endif
