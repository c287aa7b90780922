/* store_lock.c - the store's lock during a run. */
#include "run/store_lock.h"

#include "model/store.h"
#include "run/watch.h"

typedef struct waiting {
    linnet_session *session;
    linnet_status status;
    linnet_error *error;
} waiting;

static bool give_up(void *context) {
    waiting *w = context;
    w->status = ln_watch_look(&w->session->watch, NULL, w->error);
    return w->status != LINNET_OK;
}

static linnet_status lock(linnet_session *s, linnet_error *error) {
    waiting w = {.session = s, .error = error};
    ln_store_lock_unless(s->store, s->exclusive, s->watch.on ? give_up : NULL, &w);
    return w.status;
}

/* Locks the store and gets the values that other sessions hold. The caller's poll may free these sessions, which must
 * not wait for the lock then. */
linnet_status ln_lock_for_run(linnet_session *s, linnet_error *error) {
    linnet_status status = lock(s, error);
    if (!LN_HAS_DEVICES || status != LINNET_OK) return status;
    status = ln_store_fetch(s->store, -1, &s->holder, error);
    if (status != LINNET_OK) ln_store_unlock(s->store);
    return status;
}
