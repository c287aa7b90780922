/* worker_work.c - a worker does one task at a time, over all of its links. This file begins, continues, gives up and
 * completes tasks. worker_pull.c and worker_push.c do the parts of a task on each link. */
#include "sync/worker/worker_work.h"

#include "net/error.h"
#include "net/stream_send.h"
#include "sync/worker/worker_links.h"
#include "sync/worker/worker_model.h"
#include "sync/worker/worker_pull.h"
#include "sync/worker/worker_push.h"
#include "sync/worker/worker_put.h"
#include "sync/worker/worker_state.h"

static void go_on(worker_link *link) {
    if (link->done) return;
    switch (link->worker->work) {
    case WORKER_IDLE: break;
    case WORKER_AGREE: link->done = true; break;
    case WORKER_PULL: ln_worker_ask(link); break;
    case WORKER_ROWS: ln_worker_ask_rows(link); break;
    case WORKER_PUSH: ln_worker_push(link); break;
    case WORKER_PUT: ln_worker_put(link); break;
    case WORKER_SAVE: link->sent = link->sent || ln_worker_send(link, LN_SYNC_SNAPSHOT, 0, NULL, 0); break;
    case WORKER_LEAVE:
        link->sent = link->sent || ln_worker_send(link, LN_SYNC_BYE, 0, NULL, 0);
        link->done = link->sent && ln_net_stream_idle(link->stream);
        break;
    }
}

void ln_sync_worker_advance(ln_sync_worker *worker) {
    const uint64_t now = ln_worker_clock(worker);
    for (int i = 0; i < worker->link_count; i++) {
        worker_link *link = &worker->links[i];
        if (link->state != WORKER_APART) ln_worker_check_time(link, now);
        if (link->state == WORKER_OPEN && !link->ending) go_on(link);
    }
}

void ln_sync_worker_begin_agreement(ln_sync_worker *worker) { ln_worker_begin(worker, WORKER_AGREE); }

void ln_sync_worker_begin_save(ln_sync_worker *worker) { ln_worker_begin(worker, WORKER_SAVE); }

void ln_sync_worker_begin_leave(ln_sync_worker *worker) {
    worker->leaving = true;
    ln_worker_begin(worker, WORKER_LEAVE);
    for (int i = 0; i < worker->link_count; i++)
        worker->links[i].done = worker->links[i].state != WORKER_OPEN || worker->links[i].ending;
}

static const char *doing(const ln_sync_worker *worker) {
    static const char *const WORDS[] = {
        "nothing", "a handshake", "values", "rows", "an answer to a push", "an answer to a put", "a snapshot", ""};
    return WORDS[worker->work];
}

static linnet_status out_of_reach(const worker_link *link, linnet_error *error) {
    linnet_error record = link->why;
    if (!record.code) ln_sync_fail(&record, LINNET_UNREACHABLE, "no connection");
    ln_sync_at(&record, link->address);
    if (!record.hint[0])
        ln_sync_hint(&record, "is the server of shard %d running there? lost_ms sets how long a worker waits",
                     link->shard);
    if (error) *error = record;
    return (linnet_status)record.code;
}

static linnet_status too_late(const ln_sync_worker *worker, const worker_link *link, linnet_error *error) {
    ln_sync_fail(error, LINNET_TIMED_OUT, "waited %d ms for %s from the server of shard %d", worker->config.timeout_ms,
                 doing(worker), link->shard);
    ln_sync_at(error, link->address);
    return ln_sync_hint(error, worker->work == WORKER_PUSH
                                   ? "the step waits for other workers: are all of them alive? If so, raise timeout_ms"
                                   : "if the server is only busy, raise timeout_ms");
}

/* Returns why the link's part of the work can never be done, or OK. */
static linnet_status hopeless(const ln_sync_worker *worker, const worker_link *link, uint64_t now,
                              linnet_error *error) {
    if (worker->interrupted) return ln_sync_fail(error, LINNET_TIMED_OUT, "a signal ended the call");
    const uint64_t since = link->lost_at > worker->begun_at ? link->lost_at : worker->begun_at;
    const uint64_t limit = (uint64_t)worker->config.timeout_ms * LN_SYNC_MS;
    if (link->state != WORKER_OPEN && now - since > (uint64_t)worker->config.lost_ms * LN_SYNC_MS)
        return out_of_reach(link, error);
    if (limit && now - worker->begun_at > limit) return too_late(worker, link, error);
    return LINNET_OK;
}

/* Gives up the work. After this, the worker neither writes to the caller's memory nor sends from it, because the caller
 * may use it for something else. */
static void give_up(ln_sync_worker *worker) {
    linnet_error error;
    ln_sync_fail(&error, LINNET_TIMED_OUT, "the call was abandoned");
    for (int i = 0; i < worker->link_count; i++) {
        worker_link *link = &worker->links[i];
        if (link->state != WORKER_APART && (link->missing || link->ahead || link->queued > link->released))
            ln_worker_end(link, &error, false);
    }
    worker->fresh = false;
    worker->work = WORKER_IDLE;
}

/* Completes the work when all links have done their part. */
static linnet_status conclude(ln_sync_worker *worker, linnet_error *error) {
    linnet_status status = LINNET_OK;
    switch (worker->work) {
    case WORKER_AGREE:
        status = ln_worker_cover(worker, error);
        worker->step = ln_worker_next(worker);
        break;
    case WORKER_PULL: ln_worker_pulled(worker); break;
    case WORKER_PUSH: ln_worker_pushed(worker); break;
    case WORKER_PUT: status = ln_worker_was_put(worker, error); break;
    case WORKER_SAVE:
        for (int i = 0; !status && i < worker->link_count; i++)
            if (worker->links[i].unsaved.code) {
                status = (linnet_status)worker->links[i].unsaved.code;
                if (error) *error = worker->links[i].unsaved;
            }
        break;
    default: break;
    }
    for (int i = 0; i < worker->link_count; i++) worker->links[i].failures = 0;
    return status;
}

void ln_sync_worker_interrupt(ln_sync_worker *worker) { worker->interrupted = true; }

bool ln_sync_worker_finished(ln_sync_worker *worker, linnet_status *status, linnet_error *error) {
    const uint64_t now = ln_worker_clock(worker);
    int left = 0;
    *status = (linnet_status)worker->failure.code;
    if (*status && error) *error = worker->failure;
    for (int i = 0; !*status && i < worker->link_count; i++) {
        if (worker->links[i].done) continue;
        left++;
        if (worker->work == WORKER_LEAVE) /* waits at most a second for BYE */
            worker->links[i].done = now - worker->begun_at > 1000 * LN_SYNC_MS;
        else
            *status = hopeless(worker, &worker->links[i], now, error);
    }
    if (*status)
        give_up(worker);
    else if (left)
        return false;
    else
        *status = conclude(worker, error);
    worker->work = WORKER_IDLE;
    return true;
}

static void sooner(uint64_t *deadline, uint64_t time) {
    if (time < *deadline) *deadline = time;
}

uint64_t ln_sync_worker_deadline(const ln_sync_worker *worker) {
    const uint64_t now = ln_worker_clock(worker);
    uint64_t deadline = now + 1000 * LN_SYNC_MS;
    if (worker->work != WORKER_IDLE && worker->config.timeout_ms)
        sooner(&deadline, worker->begun_at + (uint64_t)worker->config.timeout_ms * LN_SYNC_MS);
    for (int i = 0; i < worker->link_count; i++) {
        const worker_link *link = &worker->links[i];
        if (link->state == WORKER_APART && link->retry_at > now) sooner(&deadline, link->retry_at);
        if (link->state == WORKER_OPEN) sooner(&deadline, link->beat_at + link->heartbeat);
        if (link->ending) sooner(&deadline, now);
    }
    return deadline > now ? deadline : now;
}
