/* posix_server.c - linnet_server of linnet_sync.h: the updates of a model, its folder, its listeners, and the loop.
 * posix_loop.c moves the bytes; server_core.h makes the decisions. */
#define _DEFAULT_SOURCE
#include "sync/server/posix_server_state.h"

#include "net/error.h"
#include "net/posix_poller.h"
#include "net/transport_listen.h"
#include "net/transport_security.h"
#include "sync/codec/manifest.h"
#include "sync/codec/manifest_model.h"
#include "sync/common/config.h"
#include "sync/common/posix_host.h"
#include "sync/server/apply.h"
#include "sync/server/posix_loop.h"
#include "sync/server/posix_metrics.h"
#include "sync/server/posix_storage.h"
#include "sync/server/record.h"
#include "sync/server/server_core.h"
#include "sync/server/server_peers.h"
#include "sync/server/server_status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TICK_MS = 100 };

static linnet_status wrong(const char *member, const char *expected, long long got, linnet_error *error) {
    ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "a field of linnet_server_config is out of range");
    ln_sync_at(error, member);
    ln_sync_expected(error, "%s", expected);
    ln_sync_got(error, "%lld", got);
    return ln_sync_hint(error, "initialize the config with linnet_server_config_init, then change what you need");
}

/* Copies the caller's configs and checks them; `c` then points to `link`. */
static linnet_status take_config(const linnet_server_config *given, linnet_server_config *c, linnet_link_config *link,
                                 linnet_error *error) {
    linnet_server_config_init(c);
    if (given && LN_SYNC_TAKE(linnet_server_config, repair, c, given, error)) return LINNET_INVALID_ARGUMENT;
    if (c->listen_count < 0 || (c->listen_count && !c->listen))
        return wrong("listen_count", "the length of `listen`", c->listen_count, error);
    if (c->mode != LINNET_SYNC_SYNCHRONOUS && c->mode != LINNET_SYNC_ASYNCHRONOUS)
        return wrong("mode", "a value of linnet_sync_mode", c->mode, error);
    if (c->durability < LINNET_SYNC_JOURNAL || c->durability > LINNET_SYNC_VOLATILE)
        return wrong("durability", "a value of linnet_sync_durability", c->durability, error);
    if (c->workers < 0) return wrong("workers", "0 or more", c->workers, error);
    if (c->quorum < 0) return wrong("quorum", "0 or more", c->quorum, error);
    if (c->staleness < -1) return wrong("staleness", "a number of steps, or -1", c->staleness, error);
    if (c->save_every < 0) return wrong("save_every", "a number of updates, or 0", c->save_every, error);
    if (c->batch < 0) return wrong("batch", "a number of examples, or 0", c->batch, error);
    if (c->max_workers < 0) return wrong("max_workers", "0 or more", c->max_workers, error);
    if (c->threads < 0) return wrong("threads", "0 or more", c->threads, error);
    const linnet_status status = ln_sync_take_link(c->link, link, error);
    c->link = link;
    return status;
}

/* ---- creation --------------------------------------------------------------------------------------------------- */

static linnet_status make_core(linnet_server *s, const linnet_server_config *c, linnet_error *error) {
    const ln_sync_host host = ln_sync_posix_host();
    const ln_sync_apply apply = ln_sync_sessions_apply(s->sessions);
    ln_sync_storage storage = {0};
    ln_sync_server_config made = {
        .workers = (uint32_t)c->workers,
        .quorum = (uint32_t)c->quorum,
        .elastic = c->elastic != 0,
        .asynchronous = c->mode == LINNET_SYNC_ASYNCHRONOUS,
        .staleness = c->staleness,
        .encodings = c->plain ? 0 : 0x3f | LN_SYNC_PULL_ENCODINGS,
        .chunk = (uint32_t)c->link->chunk,
        .heartbeat = (uint32_t)c->link->heartbeat_ms,
        .lease = (uint32_t)c->link->lease_ms,
        .max_streams = (uint32_t)c->max_workers,
        .max_bytes = c->max_bytes,
        .batch = (uint64_t)c->batch,
        .save_every = (uint64_t)c->save_every,
        .repaired = c->repair != 0,
    };
    if (s->folder) storage = ln_sync_folder_storage(s->folder);
    made.epoch = s->folder ? ln_sync_folder_epoch(s->folder) : ln_sync_fresh_epoch(0);
    return ln_sync_server_new(s->manifest, &made, &apply, s->folder ? &storage : NULL, &host, &s->core, error);
}

static linnet_status make_wake(linnet_server *s, linnet_error *error) {
    s->poller = ln_net_poller_new();
    if (s->poller && !pipe(s->wake)) {
        for (int i = 0; i < 2; i++) {
            fcntl(s->wake[i], F_SETFL, O_NONBLOCK);
            fcntl(s->wake[i], F_SETFD, FD_CLOEXEC);
        }
        if (ln_net_poller_add(s->poller, s->wake[0], LN_NET_READ, s)) return LINNET_OK;
    }
    ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot create a poller");
    return ln_sync_got(error, "%s", strerror(errno)), LINNET_OUT_OF_MEMORY;
}

static linnet_status make_listeners(linnet_server *s, const linnet_server_config *c, linnet_error *error) {
    static const char *const anywhere[] = {":0"};
    const char *const *addresses = c->listen_count ? c->listen : anywhere;
    const int count = c->listen_count ? c->listen_count : 1;
    linnet_status status = LINNET_OK;
    s->listeners = calloc((size_t)count, sizeof *s->listeners);
    if (!s->listeners) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for %d addresses", count);
    for (int i = 0; !status && i < count; i++) {
        posix_listener *l = &s->listeners[i];
        l->server = s;
        status = ln_net_listen(addresses[i], s->security, c->link->insecure != 0, &l->listener, error);
        if (status) break;
        s->listener_count++;
        if (!ln_net_poller_add(s->poller, ln_net_listener_fd(l->listener), LN_NET_READ, l))
            status = ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot watch a listening socket");
    }
    return status;
}

static linnet_status fill(linnet_server *s, linnet_store *store, linnet_server_config *c, linnet_error *error) {
    linnet_status status = ln_sync_manifest_from_model(s->model, &s->manifest, error);
    if (!status && !store) {
        status = linnet_store_create(s->model, c->allocator, &s->store, error);
        s->own_store = true;
    } else if (!status) {
        s->store = store;
    }
    if (!status)
        status =
            ln_sync_sessions_create(s->model, s->store, s->manifest, c->threads, c->allocator, &s->sessions, error);
    if (!status && c->folder)
        status = ln_sync_folder_open(c->folder, (linnet_sync_durability)c->durability, s->store, s->model, &s->folder,
                                     error);
    if (!status) status = make_core(s, c, error);
    if (!status && s->folder) status = ln_sync_folder_restore(s->folder, s->core, c->repair != 0, error);
    if (!status) status = make_wake(s, error);
    if (!status) status = ln_sync_secure(c->link, &s->security, error);
    if (!status) status = make_listeners(s, c, error);
    if (!status && c->metrics)
        status = ln_sync_metrics_create(c->metrics, c->link->insecure != 0, s->poller, &s->metrics, error);
    if (!status) s->created_version = ln_sync_server_version(s->core);
    s->journal_limit = 4 * (uint64_t)linnet_store_bytes(s->store);
    if (s->journal_limit < (64 << 20)) s->journal_limit = 64 << 20;
    return status;
}

linnet_status linnet_server_create(linnet_model *model, linnet_store *store, const linnet_server_config *config,
                                   linnet_server **out, linnet_error *error) {
    LN_SYNC_WANT_ERROR(error);
    linnet_server_config made;
    linnet_link_config link;
    linnet_server *s;
    linnet_status status;
    if (!out) return ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "linnet_server_create: `out` is NULL");
    *out = NULL;
    if (!model) return ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "linnet_server_create: `model` is NULL");
    if ((status = take_config(config, &made, &link, error)) != LINNET_OK) return status;
    s = calloc(1, sizeof *s);
    if (!s) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a server");
    s->model = model;
    s->wake[0] = s->wake[1] = -1;
    pthread_mutex_init(&s->mutex, NULL);
    status = fill(s, store, &made, error);
    if (status) {
        linnet_server_free(s);
        return status;
    }
    *out = s;
    return LINNET_OK;
}

void linnet_server_free(linnet_server *s) {
    if (!s) return;
    if (s->core) ln_sync_server_shut(s->core, false);
    if (s->core && s->poller) { /* connected peers are told that the server ends */
        pthread_mutex_lock(&s->mutex);
        for (int i = 0; i < 10 && s->peers; i++) ln_sync_server_turn(s, 20);
        pthread_mutex_unlock(&s->mutex);
    }
    while (s->peers) ln_sync_close_peer(s, s->peers);
    for (int i = 0; i < s->listener_count; i++) ln_net_listener_free(s->listeners[i].listener);
    free(s->listeners);
    ln_sync_metrics_free(s->metrics);
    ln_net_poller_free(s->poller);
    for (int i = 0; i < 2; i++)
        if (s->wake[i] >= 0) close(s->wake[i]);
    ln_net_security_free(s->security);
    ln_sync_server_release(s->core);
    ln_sync_folder_free(s->folder);
    ln_sync_sessions_free(s->sessions);
    ln_sync_manifest_free(s->manifest);
    if (s->own_store) linnet_store_free(s->store);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

static void take(linnet_server *s) {
    atomic_fetch_add(&s->waiting, 1);
    pthread_mutex_lock(&s->mutex);
    atomic_fetch_sub(&s->waiting, 1);
}

static void give(linnet_server *s) { pthread_mutex_unlock(&s->mutex); }

const char *linnet_server_address(const linnet_server *s, int i) {
    if (s && i == -1 && s->metrics) return ln_sync_metrics_address(s->metrics);
    if (!s || i < 0 || i >= s->listener_count) return NULL;
    return ln_net_listener_address(s->listeners[i].listener);
}

/* Sends the queued frames, for at most a second. */
static void finish(linnet_server *s) {
    const uint64_t began = ln_sync_now();
    while (ln_sync_server_busy(s) && ln_sync_now() - began < UINT64_C(1000000000)) ln_sync_server_turn(s, 10);
}

linnet_status linnet_server_run(linnet_server *s, uint64_t updates, linnet_error *error) {
    linnet_status status = LINNET_OK, saved;
    bool over = false;
    if (!s) return ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "linnet_server_run: `server` is NULL");
    pthread_mutex_lock(&s->mutex);
    while (!status && !atomic_load(&s->stop)) {
        ln_sync_server_turn(s, TICK_MS);
        status = ln_sync_server_failure(s->core, error);
        if (!status && s->folder && ln_sync_folder_journal(s->folder) > s->journal_limit)
            status = ln_sync_server_save(s->core, error);
        over =
            updates && ln_sync_server_version(s->core) - ln_sync_server_puts(s->core) - s->created_version >= updates;
        if (over) break;
    }
    finish(s);
    if (!status && (over || atomic_load(&s->stop) == STOP_OVER)) { /* after the answers are sent */
        ln_sync_server_shut(s->core, true);
        finish(s);
    }
    if (s->folder && status != LINNET_SUPERSEDED && !ln_sync_server_failure(s->core, NULL)) {
        saved = ln_sync_server_save(s->core, status ? NULL : error);
        if (!status) status = saved;
    }
    atomic_store(&s->stop, STOP_NOT);
    pthread_mutex_unlock(&s->mutex);
    return status;
}

void linnet_server_stop(linnet_server *s, linnet_sync_stop how) {
    const int kept = errno;
    if (!s) return;
    atomic_store(&s->stop, how == LINNET_SYNC_END_JOB ? STOP_OVER : STOP);
    if (write(s->wake[1], "", 1) < 0) errno = kept; /* the pipe is full, so the loop wakes up anyway */
    errno = kept;
}

linnet_store *linnet_server_store(linnet_server *s) { return s ? s->store : NULL; }

linnet_status linnet_server_save(linnet_server *s, linnet_error *error) {
    linnet_status status;
    if (!s) return ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "linnet_server_save: `server` is NULL");
    take(s);
    status = ln_sync_server_save(s->core, error);
    give(s);
    return status;
}

size_t linnet_server_status(linnet_server *s, char *text, size_t size) {
    size_t needed;
    if (!s) return 0;
    take(s);
    needed = ln_sync_server_status(s->core, text, size);
    give(s);
    return needed;
}
