/* worker_push.c - sends a step to the servers: messages, COMMIT, and the servers' answers.
 * A link keeps its messages until the ACK. If the connection is lost, the link sends them again, and the server counts
 * them once. */
#include "sync/worker/worker_push.h"

#include "net/error.h"
#include "net/stream_send.h"
#include "sync/worker/worker_gradient.h"
#include "sync/worker/worker_links.h"
#include "sync/worker/worker_pull.h"
#include "sync/worker/worker_state.h"

#include <stdlib.h>
#include <string.h>

/* Called when the step is decided. Does not send the rest of the push. If no COMMIT is queued, the step was closed
 * without this push: tells the server that it is abandoned, so that both count it as late. */
static void abandon(worker_link *link) {
    const ln_sync_commit commit = {.flags = LN_SYNC_COMMIT_ABANDON};
    unsigned char payload[LN_SYNC_COMMIT_BYTES];
    for (uint32_t i = 0; i < link->queued && link->released < link->queued; i++) ln_net_stream_cancel(link->stream, i);
    if (link->committed) return;
    ln_sync_commit_write(&commit, payload);
    ln_worker_send(link, LN_SYNC_COMMIT, link->step, payload, sizeof payload);
}

static void decided(worker_link *link, int outcome) {
    link->acked = true;
    link->outcome = outcome;
}

static uint64_t clock_of(const worker_link *link) { return link->worker->host.clock(link->worker->host.context); }

/* Queues COMMIT behind all queued messages of the step. */
static void commit(worker_link *link) {
    const ln_sync_worker *worker = link->worker;
    const ln_net_header header = {.type = LN_SYNC_COMMIT, .step = link->step};
    ln_sync_commit commit = worker->commit;
    unsigned char payload[LN_SYNC_COMMIT_BYTES];
    /* Values that local steps have changed are requested later, with digests. */
    const bool ahead = worker->then_pull && link->held && !worker->config.keep_pulled;
    commit.flags = ahead ? LN_SYNC_COMMIT_PULL : 0;
    commit.version = link->base;
    for (uint32_t i = 0; i < link->message_count; i++) commit.pushes += link->messages[i].type == LN_SYNC_PUSH;
    ln_sync_commit_write(&commit, payload);
    if (!ln_net_stream_behind(link->stream, &header, payload, sizeof payload)) return;
    link->committed = true;
    link->ahead = ahead;
    link->handed_at = clock_of(link);
}

static void queue(worker_link *link) {
    while (link->queued < link->message_count) {
        const worker_message *message = &link->messages[link->queued];
        /* Sends all row numbers before the first row. Otherwise chunks of row numbers and of rows would alternate. */
        const bool behind_ids = link->queued > 0 && message[-1].type == LN_SYNC_IDS && message[-1].size > link->chunk;
        if (message->type == LN_SYNC_PUSH && behind_ids && link->released < link->queued) return;
        const ln_net_header header = {.type = message->type,
                                      .flags = message->flags,
                                      .encoding = message->encoding,
                                      .step = link->step,
                                      .tensor = message->tensor};
        if (!ln_net_stream_bulk(link->stream, &header, message->data, message->size, link->queued)) return;
        link->queued++;
    }
    commit(link);
}

void ln_worker_released(worker_link *link) {
    if (link->state != WORKER_OPEN) return; /* the stream is being reset */
    if (++link->released == link->message_count) link->handed_at = clock_of(link);
}

void ln_worker_push(worker_link *link) {
    const ln_sync_worker *worker = link->worker;
    if (!link->acked && !link->committed) {
        /* The server may have let this worker skip steps before it was restarted, and may not know this any more. */
        if (link->next < link->step) {
            link->step = link->next;
            link->last_step = LN_SYNC_NONE; /* the outcome is of another push with the same step number */
        }
        if (link->next == link->step) {
            queue(link);
        } else if (link->last_step == link->step) { /* the step was closed without this worker */
            abandon(link);
            decided(link, link->last_outcome);
        } else { /* the server still knows the outcome of this step */
            commit(link);
        }
    }
    if (!link->acked || link->released < link->queued) return;
    if (!worker->then_pull)
        link->done = true;
    else if (link->ahead)
        link->done = link->missing == 0;
    else
        ln_worker_ask(link);
}

static ln_net_refusal acked(worker_link *link, uint64_t step, const ln_sync_ack *ack) {
    ln_sync_worker *worker = link->worker;
    link->next = ack->next;
    if (ack->version > link->version) link->version = ack->version;
    worker->members = ack->members;
    if (ack->outcome != LN_SYNC_NO_OUTCOME) {
        worker->info.loss = ack->loss;
        worker->info.loss_weight = ack->loss_weight;
    }
    if (ack->batch) {
        worker->info.first_example = ack->first_example;
        worker->info.examples = ack->examples;
        worker->info.batch = ack->batch;
    }
    if (ack->outcome == LN_SYNC_NO_OUTCOME) {
        /* The server has closed fewer steps than WELCOME said, so it needs this push, too. */
        if (worker->work != WORKER_PUSH || !link->skipped || ack->next > link->step) return LN_NET_FINE;
        link->skipped = link->acked = link->done = false;
        ln_worker_push(link);
        return LN_NET_FINE;
    }
    link->last_step = step;
    link->last_outcome = ack->outcome;
    memcpy(link->server_clock, ack->clock, sizeof link->server_clock);
    if (worker->work != WORKER_PUSH || link->acked || step < link->step) return LN_NET_FINE;
    if (step > link->step) { /* a later answer replaced ours, so ask for it again */
        link->committed = false;
        ln_worker_push(link);
        return LN_NET_FINE;
    }
    if (ack->outcome == LN_SYNC_APPLIED && ack->version > link->base) link->staleness = ack->version - link->base - 1;
    abandon(link);
    decided(link, ack->outcome);
    if (worker->then_pull && link->ahead) ln_worker_await(link);
    ln_worker_push(link);
    return LN_NET_FINE;
}

ln_net_refusal ln_worker_take_ack(worker_link *link, const ln_net_header *header, const void *payload) {
    ln_sync_ack ack;
    return ln_sync_ack_read(&ack, payload, header->length) ? acked(link, header->step, &ack) : LN_NET_MALFORMED;
}

linnet_status ln_sync_worker_begin_push(ln_sync_worker *worker, linnet_session *session, double weight, bool pull,
                                        linnet_error *error) {
    const uint64_t now = worker->host.clock(worker->host.context);
    linnet_status status = LINNET_OK;
    if (worker->config.read_only) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "a read-only worker cannot push");
        return ln_sync_hint(error, "create the worker without read_only");
    }
    if (!(weight > 0 && weight <= 1e300)) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "the weight of a push is out of range");
        ln_sync_expected(error, "a finite number above 0, such as the number of examples");
        return ln_sync_got(error, "%g", weight);
    }
    worker->commit =
        (ln_sync_commit){.weight = weight, .began = worker->values_at, .computed = now - worker->values_at};
    worker->info.compute_ns = worker->commit.computed;
    status = session ? ln_worker_collect(worker, session, error) : ln_worker_differ(worker, error);
    for (int i = 0; !status && i < worker->link_count; i++) status = ln_worker_encode(&worker->links[i], error);
    if (status) return status;
    worker->then_pull = pull;
    ln_worker_begin(worker, WORKER_PUSH);
    /* A restarted server may know less than before the restart. A server that is ahead of this step has already closed
     * it. */
    if (ln_worker_next(worker) < worker->step) worker->step = ln_worker_next(worker);
    for (int i = 0; i < worker->link_count; i++) {
        worker->links[i].step = worker->step;
        worker->links[i].staleness = 0;
        /* This server is ahead of the others, for example because another server was restarted. The push that it
         * received for this step number was another push. */
        worker->links[i].skipped = worker->links[i].next > worker->step;
        if (!worker->links[i].skipped) continue;
        decided(&worker->links[i], LN_SYNC_LATE);
        if (worker->links[i].state == WORKER_OPEN) abandon(&worker->links[i]);
    }
    return LINNET_OK;
}

void ln_worker_pushed(ln_sync_worker *worker) {
    linnet_worker_info *info = &worker->info;
    const uint64_t now = worker->host.clock(worker->host.context);
    uint64_t handed = worker->begun_at;
    info->outcome = LINNET_SYNC_APPLIED;
    info->staleness = 0;
    for (int i = 0; i < worker->link_count; i++) {
        const worker_link *link = &worker->links[i];
        if (link->outcome > info->outcome) info->outcome = link->outcome;
        if (link->staleness > info->staleness) info->staleness = link->staleness;
        if (link->handed_at > handed) handed = link->handed_at;
    }
    worker->step = ln_worker_next(worker);
    info->applied += info->outcome == LINNET_SYNC_APPLIED;
    info->late += info->outcome == LINNET_SYNC_LATE;
    info->not_finite += info->outcome == LINNET_SYNC_NOT_FINITE;
    info->push_ns = handed - worker->begun_at;
    info->wait_ns = now - handed;
    info->decided_ns = now;
    worker->fresh = false;
    if (worker->then_pull) ln_worker_pulled(worker);
}
