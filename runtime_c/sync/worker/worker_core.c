/* worker_core.c - a worker's connections: received frames, new and lost connections; its creation and end.
 * worker_work.c does the work that involves all links. */
#include "sync/worker/worker_core.h"

#include "net/error.h"
#include "net/refusal.h"
#include "net/stream.h"
#include "sync/codec/manifest.h"
#include "sync/codec/messages.h"
#include "sync/worker/worker_agree.h"
#include "sync/worker/worker_links.h"
#include "sync/worker/worker_model.h"
#include "sync/worker/worker_pull.h"
#include "sync/worker/worker_push.h"
#include "sync/worker/worker_put.h"
#include "sync/worker/worker_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 64, BACKOFF_MS = 20, BACKOFF_MAX_MS = 20000, FAILURES = 8 };

/* ---- receiving ------------------------------------------------------------------------------------------------- */

static void heartbeat_came(worker_link *link, const ln_sync_heartbeat *beat, uint64_t now) {
    link->peer_clock = beat->clock;
    link->peer_clock_at = now;
    if (beat->peer_clock == 0) return;
    /* RFC 5905, section 8: t1 is our clock when we sent, t2 the peer's clock when our frame arrived, t3 the peer's
     * clock when it sent, t4 our clock now. */
    const int64_t t1 = (int64_t)beat->peer_clock, t2 = (int64_t)beat->received, t3 = (int64_t)beat->clock;
    const int64_t t4 = (int64_t)now, delay = (t4 - t1) - (t3 - t2);
    if (delay < 0) return;
    /* The sample with the shortest delay is the best. It expires after a while, because clocks drift. */
    if (link->delay >= 0 && delay > link->delay && now - link->delay_at < 8 * link->heartbeat) return;
    link->delay = delay;
    link->offset = ((t2 - t1) + (t3 - t4)) / 2;
    link->delay_at = now;
}

static ln_net_refusal take_heartbeat(worker_link *link, const ln_net_header *header, const void *payload) {
    ln_sync_heartbeat beat;
    if (!ln_sync_heartbeat_read(&beat, payload, header->length)) return LN_NET_MALFORMED;
    heartbeat_came(link, &beat, ln_worker_clock(link->worker));
    return LN_NET_FINE;
}

static ln_net_refusal take_saved(worker_link *link, const ln_net_header *header, const void *payload) {
    ln_sync_saved saved;
    if (!ln_sync_saved_read(&saved, payload, header->length)) return LN_NET_MALFORMED;
    if (link->worker->work != WORKER_SAVE) return LN_NET_FINE;
    link->done = true;
    if (saved.status == LINNET_OK) return LN_NET_FINE;
    ln_sync_fail(&link->unsaved, (linnet_status)saved.status, "the server cannot save: %.130s", saved.text);
    ln_sync_at(&link->unsaved, link->address);
    return LN_NET_FINE;
}

static ln_net_refusal take_bye(worker_link *link, const ln_net_header *header, const void *payload) {
    linnet_error error;
    (void)header, (void)payload;
    ln_sync_fail(&error, LINNET_CONNECTION_LOST, "the server has ended");
    ln_sync_hint(&error, "start the server again; the workers then continue");
    ln_worker_end(link, &error, false);
    return LN_NET_FINE;
}

/* What a worker does with each message that servers send. `take` gets each complete frame. `place` gets the header of a
 * chunk before the chunk is received, and chooses where its bytes are written. They return what `frame` and `place` of
 * net/handler.h return. A worker asks for no REPORT; posix_status.c does. */
static const struct {
    ln_net_refusal (*take)(worker_link *link, const ln_net_header *header, const void *payload);
    ln_net_refusal (*place)(worker_link *link, const ln_net_header *header, void **destination);
} messages[LN_SYNC_TYPES] = {
    [LN_SYNC_WELCOME] = {.take = ln_worker_take_welcome},
    [LN_SYNC_TENSORS] = {.take = ln_worker_take_tensors},
    [LN_SYNC_REFUSE] = {.take = ln_worker_take_refuse},
    [LN_SYNC_DATA] = {.take = ln_worker_take_data, .place = ln_worker_place_data},
    [LN_SYNC_SAME] = {.take = ln_worker_take_same},
    [LN_SYNC_ACK] = {.take = ln_worker_take_ack},
    [LN_SYNC_STORED] = {.take = ln_worker_take_stored},
    [LN_SYNC_HEARTBEAT] = {.take = take_heartbeat},
    [LN_SYNC_SAVED] = {.take = take_saved},
    [LN_SYNC_BYE] = {.take = take_bye},
};

static ln_net_refusal frame(void *context, ln_net_stream *stream, const ln_net_header *header, const void *payload) {
    worker_link *link = context;
    (void)stream;
    link->heard_at = ln_worker_clock(link->worker);
    if (link->ending) return LN_NET_FINE;
    if (messages[header->type].take == NULL) return LN_NET_UNEXPECTED;
    return messages[header->type].take(link, header, payload);
}

static ln_net_refusal place(void *context, ln_net_stream *stream, const ln_net_header *header, void **destination) {
    (void)stream;
    if (messages[header->type].place == NULL) return LN_NET_UNEXPECTED;
    return messages[header->type].place(context, header, destination);
}

static void released(void *context, ln_net_stream *stream, uint64_t tag) {
    (void)stream;
    (void)tag;
    ln_worker_released(context);
}

/* ---- connections ------------------------------------------------------------------------------------------------ */

ln_sync_wish ln_sync_worker_wish(const ln_sync_worker *worker, int index) {
    const worker_link *link = &worker->links[index];
    const bool asks = worker->number != LN_NET_NO_WORKER || worker->config.read_only || worker->lead == index;
    if (link->state != WORKER_APART)
        return link->ending || ln_net_stream_failure(link->stream) ? LN_SYNC_WISH_CLOSE : LN_SYNC_WISH_KEEP;
    if (worker->failure.code || worker->leaving || !asks || ln_worker_clock(worker) < link->retry_at)
        return LN_SYNC_WISH_NONE;
    return LN_SYNC_WISH_CONNECT;
}

ln_net_stream *ln_sync_worker_stream(const ln_sync_worker *worker, int link) { return worker->links[link].stream; }

void ln_sync_worker_connected(ln_sync_worker *worker, int index) {
    worker_link *link = &worker->links[index];
    link->state = WORKER_GREETING;
    link->ending = link->held = false;
    link->begun_at = link->heard_at = ln_worker_clock(worker);
    ln_worker_greet(link);
}

/* Full jitter: a random wait up to a bound that doubles, so that workers do not all connect again at the same time. */
static uint64_t back_off(worker_link *link) {
    uint64_t bound = BACKOFF_MS, chance;
    for (int i = 0; i < link->attempts && bound < BACKOFF_MAX_MS; i++) bound *= 2;
    if (bound > BACKOFF_MAX_MS) bound = BACKOFF_MAX_MS;
    if (link->attempts < 30) link->attempts++;
    link->worker->host.random(link->worker->host.context, &chance, sizeof chance);
    return chance % (bound * LN_SYNC_MS + 1);
}

void ln_sync_worker_lost(ln_sync_worker *worker, int index, const linnet_error *why) {
    worker_link *link = &worker->links[index];
    const ln_net_refusal failure = ln_net_stream_failure(link->stream);
    const uint64_t now = ln_worker_clock(worker);
    linnet_error error;
    if (link->state == WORKER_OPEN || !link->lost_at) link->lost_at = now;
    if (!link->ending && failure) { /* we refused what the server sent */
        ln_sync_fail(&error, LINNET_PROTOCOL_ERROR, "the server sent invalid data: %s", ln_net_refusal_name(failure));
        ln_sync_hint(&error, "if this happens again, run the same version of linnet on both sides");
        why = &error;
        if (++link->failures >= FAILURES) ln_worker_end(link, why, true);
    }
    if (!link->ending && why && why->code == LINNET_NOT_AUTHENTICATED && !link->epoch) {
        error = *why; /* the key has never worked, so trying again does not help */
        ln_sync_at(&error, link->address);
        ln_worker_end(link, &error, true);
    }
    if (!link->ending && why) {
        link->why = *why;
        ln_sync_at(&link->why, link->address);
    } else if (!link->ending) {
        ln_sync_fail(&link->why, LINNET_CONNECTION_LOST, "the server has closed the connection");
        ln_sync_at(&link->why, link->address);
    }
    link->ending = false;
    link->state = WORKER_APART;
    ln_net_stream_reset(link->stream);
    ln_worker_restart(link);
    link->retry_at = now + back_off(link);
    if (worker->work == WORKER_LEAVE) link->done = true; /* leaving ends when the connection is closed */
}

/* ---- creation and end ------------------------------------------------------------------------------------------- */

static linnet_status make_link(ln_sync_worker *worker, int index, const char *address, linnet_error *error) {
    worker_link *link = &worker->links[index];
    const ln_net_handler handler = {.context = link, .place = place, .frame = frame, .released = released};
    const size_t bytes = ln_net_stream_bytes(PLACES), length = strlen(address) + 1;
    void *memory = ln_worker_memory(worker, bytes);
    link->worker = worker;
    link->index = index;
    link->last_step = LN_SYNC_NONE;
    link->delay = -1;
    link->address = ln_worker_memory(worker, length);
    if (memory) link->stream = ln_net_stream_init(memory, PLACES, &ln_sync_protocol, &handler);
    if (!memory || !link->address) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a connection");
    memcpy(link->address, address, length);
    return LINNET_OK;
}

linnet_status ln_sync_worker_create(linnet_model *model, linnet_store *store, const char *const *servers, int links,
                                    const linnet_worker_config *config, const ln_sync_host *host, ln_sync_worker **out,
                                    linnet_error *error) {
    ln_sync_worker *worker = calloc(1, sizeof *worker);
    *out = NULL;
    if (!worker) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a worker");
    worker->model = model;
    worker->store = store;
    worker->config = *config;
    worker->link = *config->link;
    worker->host = *host;
    worker->bytes = sizeof *worker;
    worker->loss_output = -1;
    worker->number = config->worker < 0 ? LN_NET_NO_WORKER : (uint32_t)config->worker;
    if (config->name) snprintf(worker->name, sizeof worker->name, "%s", config->name);
    host->random(host->context, &worker->incarnation, sizeof worker->incarnation);
    worker->links = ln_worker_memory(worker, (size_t)links * sizeof *worker->links);
    linnet_status status = worker->links ? ln_worker_read_model(worker, error)
                                         : ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a worker");
    for (int i = 0; !status && i < links; i++) {
        worker->link_count = i + 1;
        status = make_link(worker, i, servers[i], error);
    }
    if (status)
        ln_sync_worker_free(worker);
    else
        *out = worker;
    return status;
}

static void free_link(worker_link *link) {
    for (uint32_t i = 0; link->parts && i < link->manifest->count; i++) {
        free(link->parts[i].residual);
        free(link->parts[i].encoded);
    }
    free(link->parts);
    free(link->messages);
    ln_sync_manifest_free(link->manifest);
    free(link->address);
    free(link->stream);
}

void ln_sync_worker_free(ln_sync_worker *worker) {
    if (!worker) return;
    for (int i = 0; i < worker->link_count; i++) free_link(&worker->links[i]);
    for (int i = 0; i < worker->tensor_count; i++) {
        worker_tensor *tensor = &worker->tensors[i];
        free((char *)(uintptr_t)tensor->info.name);
        free(tensor->pulled);
        free(tensor->converted);
        free(tensor->ids);
        free(tensor->sums);
        free(tensor->looked_up);
        free(tensor->places);
    }
    free(worker->tensors);
    free(worker->by_name);
    free(worker->links);
    free(worker);
}
