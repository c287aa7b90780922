/* apply.h - updates as a linnet model has them: sessions of its `update/...` signatures over one store.
 * A signature with sparse gradients has sessions for a few numbers of rows, each the next power of two. */
#ifndef LN_SYNC_APPLY_H
#define LN_SYNC_APPLY_H

#include "sync/server_core.h"

typedef struct ln_sync_sessions ln_sync_sessions;

/* model, store and manifest are used until it is freed. threads: of updates of large variables; 0:
 * linnet_default_threads(). Errors: those of linnet_plan_create and linnet_session_create. */
linnet_status ln_sync_sessions_create(linnet_model *model, linnet_store *store, const ln_sync_manifest *manifest,
                                      int32_t threads, const linnet_allocator *allocator, ln_sync_sessions **out,
                                      linnet_error *error);
void ln_sync_sessions_free(ln_sync_sessions *sessions);
ln_sync_apply ln_sync_sessions_apply(ln_sync_sessions *sessions);

#endif
