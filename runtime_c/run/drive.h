/* drive.h - runs sessions without devices, and has the functions that sessions with devices also use. The caller has
 * already set the conditions that may end the run (watch.h). */
#ifndef LN_RUN_DRIVE_H
#define LN_RUN_DRIVE_H

#include "base/platform_threads.h"
#include "plan/session_layout.h"
#include "run/store_lock.h"

linnet_status ln_run_here(linnet_session *session, bool submits, linnet_error *error);

/* Begins a run: locks the store, and takes new values into the snapshot. Errors: those of ln_lock_for_run; the run has
 * then not begun. Inline, like ln_run_end, because a small model runs in two microseconds. */
static inline linnet_status ln_run_begin(linnet_session *s, linnet_error *error) {
    const linnet_status status = s->locks ? ln_lock_for_run(s, error) : LINNET_OK;
    if (status != LINNET_OK) return status;
    if (s->snapshot != NULL) ln_snapshot_refresh(s->snapshot);
    atomic_store_explicit(&s->run_error.raised, 0, memory_order_relaxed);
    if (s->threads != NULL) ln_threads_begin(s->threads);
    ++s->run_count;
    return LINNET_OK;
}
/* Undoes ln_run_begin. */
static inline void ln_run_end(linnet_session *s) {
    if (s->threads != NULL) ln_threads_end(s->threads);
    if (s->locks) ln_store_unlock(s->store);
}

/* Runs the steps of *last and of the segments that continue it. *last becomes the last segment that has begun. */
linnet_status ln_run_segments(linnet_session *session, ln_instance **last, linnet_error *error);
/* Stores the new values of variables, of every segment up to `last`, after a successful run. */
void ln_run_commit(linnet_session *session, const ln_instance *last);

#endif
