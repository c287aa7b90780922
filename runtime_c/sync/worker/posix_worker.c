/* posix_worker.c - a worker with sockets and a clock: the linnet_worker_... functions of linnet_sync.h. The caller's
 * thread moves the bytes during a call; a separate thread sends heartbeats between calls. posix_drive.c is the loop. */
#define _POSIX_C_SOURCE 200809L
#include "sync/worker/posix_worker_state.h"

#include "net/error.h"
#include "net/transport_flow.h"
#include "net/transport_security.h"
#include "sync/common/config.h"
#include "sync/common/posix_host.h"
#include "sync/worker/posix_drive.h"
#include "sync/worker/posix_rows.h"
#include "sync/worker/worker_core.h"
#include "sync/worker/worker_info.h"
#include "sync/worker/worker_pull.h"
#include "sync/worker/worker_push.h"
#include "sync/worker/worker_put.h"
#include "sync/worker/worker_work.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the heartbeat thread --------------------------------------------------------------------------------------- */

static void *keep_alive(void *argument) {
    linnet_worker *worker = argument;
    pthread_mutex_lock(&worker->resting);
    while (!worker->ending) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 50 * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&worker->wake, &worker->resting, &until);
        if (worker->ending || pthread_mutex_trylock(&worker->moving))
            continue; /* a call is in progress; the call itself does this work */
        ln_worker_turn(worker);
        pthread_mutex_unlock(&worker->moving);
    }
    pthread_mutex_unlock(&worker->resting);
    return NULL;
}

static linnet_status start_thread(linnet_worker *worker, linnet_error *error) {
    pthread_condattr_t clock;
    sigset_t all, before;
    pthread_mutex_init(&worker->moving, NULL);
    pthread_mutex_init(&worker->resting, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&worker->wake, &clock);
    pthread_condattr_destroy(&clock);
    worker->threaded = true;
    sigfillset(&all); /* leaves signals to the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&worker->thread, NULL, keep_alive, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) return LINNET_OK;
    worker->threaded = false;
    pthread_mutex_destroy(&worker->moving);
    pthread_mutex_destroy(&worker->resting);
    pthread_cond_destroy(&worker->wake);
    return ln_sync_fail(error, LINNET_THREAD_FAILED, "cannot start the heartbeat thread");
}

static void stop_thread(linnet_worker *worker) {
    if (!worker->threaded) return;
    pthread_mutex_lock(&worker->resting);
    worker->ending = true;
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->resting);
    pthread_join(worker->thread, NULL);
    pthread_mutex_destroy(&worker->moving);
    pthread_mutex_destroy(&worker->resting);
    pthread_cond_destroy(&worker->wake);
}

/* ---- creation and end ------------------------------------------------------------------------------------------- */

static linnet_status null_argument(const char *what, linnet_error *error) {
    ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "an argument is NULL");
    return ln_sync_at(error, what);
}

static linnet_status set_up(linnet_worker *worker, linnet_model *model, linnet_store *store, const char *const *servers,
                            int count, const linnet_worker_config *given, linnet_error *error) {
    const ln_sync_host host = ln_sync_posix_host();
    linnet_worker_config config;
    linnet_link_config link;
    linnet_status status = ln_sync_take_worker(given, &config, &link, error);
    worker->links = calloc((size_t)count, sizeof *worker->links);
    worker->fds = calloc((size_t)count, sizeof *worker->fds);
    if (!status && (!worker->links || !worker->fds))
        status = ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a worker");
    if (!status) status = ln_sync_secure(&link, &worker->security, error);
    worker->insecure = !status && link.insecure != 0;
    if (!status) status = ln_sync_worker_create(model, store, servers, count, &config, &host, &worker->core, error);
    if (status) return status;
    worker->link_count = count;
    worker->interrupted = config.interrupted;
    worker->interrupted_context = config.interrupted_context;
    for (int i = 0; i < count; i++) worker->links[i].address = ln_sync_worker_address(worker->core, i);
    ln_sync_worker_begin_agreement(worker->core);
    status = ln_worker_drive(worker, error);
    return status ? status : start_thread(worker, error);
}

linnet_status linnet_worker_create(linnet_model *model, linnet_store *store, const char *const *servers,
                                   int32_t server_count, const linnet_worker_config *config, linnet_worker **out,
                                   linnet_error *error) {
    LN_SYNC_WANT_ERROR(error);
    if (!out) return null_argument("out", error);
    *out = NULL;
    if (!model || !store || !servers) return null_argument(!model ? "model" : !store ? "store" : "servers", error);
    if (server_count < 1 || server_count > 65535) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "the number of server addresses is out of range");
        ln_sync_expected(error, "one address for each shard, 1 to 65535");
        return ln_sync_got(error, "%d", (int)server_count);
    }
    for (int32_t i = 0; i < server_count; i++)
        if (!servers[i]) return null_argument("servers", error);
    linnet_worker *worker = calloc(1, sizeof *worker);
    if (!worker) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a worker");
    const linnet_status status = set_up(worker, model, store, servers, server_count, config, error);
    if (status)
        linnet_worker_free(worker);
    else
        *out = worker;
    return status;
}

void linnet_worker_free(linnet_worker *worker) {
    if (!worker) return;
    stop_thread(worker);
    if (worker->core && worker->link_count) {
        ln_sync_worker_begin_leave(worker->core);
        ln_worker_drive(worker, NULL);
    }
    for (int i = 0; i < worker->link_count; i++) ln_net_transport_free(worker->links[i].transport);
    ln_sync_worker_free(worker->core);
    ln_net_security_free(worker->security);
    ln_worker_free_lookups(worker);
    free(worker->links);
    free(worker->fds);
    free(worker);
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

static linnet_status pull(linnet_worker *worker, linnet_error *error) {
    ln_sync_worker_begin_pull(worker->core);
    return ln_worker_drive(worker, error);
}

linnet_status linnet_worker_pull(linnet_worker *worker, linnet_error *error) {
    if (!worker) return null_argument("worker", error);
    pthread_mutex_lock(&worker->moving);
    const linnet_status status = pull(worker, error);
    pthread_mutex_unlock(&worker->moving);
    return status;
}

static linnet_status push(linnet_worker *worker, linnet_session *session, double weight, bool then_pull,
                          linnet_error *error) {
    linnet_status status;
    pthread_mutex_lock(&worker->moving);
    status = ln_sync_worker_begin_push(worker->core, session, weight, then_pull, error);
    if (!status) status = ln_worker_drive(worker, error);
    pthread_mutex_unlock(&worker->moving);
    return status;
}

linnet_status linnet_worker_push(linnet_worker *worker, linnet_session *session, double weight, linnet_error *error) {
    return worker ? push(worker, session, weight, false, error) : null_argument("worker", error);
}

linnet_status linnet_worker_step(linnet_worker *worker, linnet_session *session, linnet_session *ids, double weight,
                                 linnet_error *error) {
    linnet_status status = LINNET_OK;
    if (!worker || !session) return null_argument(!worker ? "worker" : "session", error);
    pthread_mutex_lock(&worker->moving);
    if (!ln_sync_worker_fresh(worker->core)) status = pull(worker, error);
    if (!status) status = ln_worker_feed_rows(worker, ids, session, error);
    pthread_mutex_unlock(&worker->moving);
    linnet_run_config run;
    linnet_run_config_init(&run);
    run.poll = worker->interrupted;
    run.poll_context = worker->interrupted_context;
    if (!status) status = linnet_run_with(session, &run, error);
    return status ? status : push(worker, session, weight, true, error);
}

linnet_status linnet_worker_put(linnet_worker *worker, const char *name, const void *data, size_t bytes,
                                linnet_error *error) {
    if (!worker) return null_argument("worker", error);
    if (!name || (bytes && !data)) return null_argument(!name ? "name" : "data", error);
    pthread_mutex_lock(&worker->moving);
    linnet_status status = ln_sync_worker_begin_put(worker->core, name, data, bytes, error);
    if (!status) status = ln_worker_drive(worker, error);
    pthread_mutex_unlock(&worker->moving);
    return status;
}

linnet_status linnet_worker_save(linnet_worker *worker, linnet_error *error) {
    if (!worker) return null_argument("worker", error);
    pthread_mutex_lock(&worker->moving);
    ln_sync_worker_begin_save(worker->core);
    const linnet_status status = ln_worker_drive(worker, error);
    pthread_mutex_unlock(&worker->moving);
    return status;
}

static void link_info(const linnet_worker *worker, int i, linnet_link_info *info) {
    const posix_link *link = &worker->links[i];
    uint64_t received = 0, sent = 0;
    if (link->transport) ln_net_transport_counts(link->transport, &received, &sent);
    ln_sync_worker_get_link(worker->core, i, info);
    info->received = link->received + received;
    info->sent = link->sent + sent;
}

linnet_status linnet_worker_get_info(linnet_worker *worker, linnet_worker_info *out) {
    linnet_worker_info info;
    if (!worker) return LINNET_INVALID_ARGUMENT;
    pthread_mutex_lock(&worker->moving);
    ln_sync_worker_get_info(worker->core, &info);
    for (int i = 0; i < worker->link_count; i++) {
        linnet_link_info link;
        link_info(worker, i, &link);
        info.received += link.received;
        info.sent += link.sent;
    }
    pthread_mutex_unlock(&worker->moving);
    return LN_SYNC_GIVE(linnet_worker_info, link_count, &info, out);
}

linnet_status linnet_worker_get_link(linnet_worker *worker, int i, linnet_link_info *out) {
    linnet_link_info info;
    if (!worker || i < 0 || i >= worker->link_count) return LINNET_INVALID_ARGUMENT;
    pthread_mutex_lock(&worker->moving);
    link_info(worker, i, &info);
    pthread_mutex_unlock(&worker->moving);
    return LN_SYNC_GIVE(linnet_link_info, clock_ns, &info, out);
}
