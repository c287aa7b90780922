/* worker_core.c - the links of a worker: connections that come and go, heartbeats, the work that goes on over all of
 * them, and when it is over. What the work consists of is in the other worker_*.c. */
#include "sync/worker_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 64, HANDSHAKE_MS = 10000, BACKOFF_MS = 20, BACKOFF_MAX_MS = 20000, FAILURES = 8 };

static uint64_t clock_of(const ln_sync_worker *worker) { return worker->host.clock(worker->host.context); }

/* ---- what comes ------------------------------------------------------------------------------------------------ */

static void heartbeat_came(worker_link *link, const ln_sync_beat *beat, uint64_t now) {
    link->peer_clock = beat->clock;
    link->peer_clock_at = now;
    if (beat->peer_clock == 0) return;
    /* RFC 5905, section 8: t1 our clock when we sent, t2 theirs when that came, t3 theirs when they sent, t4 ours now.
     */
    const int64_t t1 = (int64_t)beat->peer_clock, t2 = (int64_t)beat->received, t3 = (int64_t)beat->clock;
    const int64_t t4 = (int64_t)now, delay = (t4 - t1) - (t3 - t2);
    if (delay < 0) return;
    /* The shortest delay tells best; it is forgotten in time, for clocks drift. */
    if (link->delay >= 0 && delay > link->delay && now - link->delay_at < 8 * link->heartbeat) return;
    link->delay = delay;
    link->offset = ((t2 - t1) + (t3 - t4)) / 2;
    link->delay_at = now;
}

static ln_sync_refusal control(worker_link *link, const ln_sync_header *header, const void *payload) {
    const size_t length = header->length;
    ln_sync_welcome welcome;
    ln_sync_refuse refuse;
    ln_sync_ack ack;
    ln_sync_beat beat;
    ln_sync_saved saved;
    linnet_error error;
    switch (header->type) {
    case LN_SYNC_WELCOME:
        return ln_sync_welcome_read(&welcome, payload, length) ? ln_worker_welcomed(link, &welcome) : LN_SYNC_MALFORMED;
    case LN_SYNC_TENSORS: return ln_worker_announced(link, payload, length);
    case LN_SYNC_REFUSE:
        if (!ln_sync_refuse_read(&refuse, payload, length)) return LN_SYNC_MALFORMED;
        ln_worker_refused(link, &refuse);
        return LN_SYNC_FINE;
    case LN_SYNC_SAME: return ln_worker_same(link, payload, length);
    case LN_SYNC_ACK:
        return ln_sync_ack_read(&ack, payload, length) ? ln_worker_acked(link, header->step, &ack) : LN_SYNC_MALFORMED;
    case LN_SYNC_HEARTBEAT:
        if (!ln_sync_beat_read(&beat, payload, length)) return LN_SYNC_MALFORMED;
        heartbeat_came(link, &beat, clock_of(link->worker));
        return LN_SYNC_FINE;
    case LN_SYNC_SAVED:
        if (!ln_sync_saved_read(&saved, payload, length)) return LN_SYNC_MALFORMED;
        if (link->worker->work != WORKER_SAVE) return LN_SYNC_FINE;
        link->done = true;
        if (saved.status == LINNET_OK) return LN_SYNC_FINE;
        ln_sync_fail(&link->unsaved, (linnet_status)saved.status, "the server could not save: %.130s", saved.text);
        ln_sync_at(&link->unsaved, link->address);
        return LN_SYNC_FINE;
    case LN_SYNC_BYE:
        ln_sync_fail(&error, LINNET_CONNECTION_LOST, "the server has ended");
        ln_sync_hint(&error, "start it again: workers go on where they were");
        ln_worker_end(link, &error, false);
        return LN_SYNC_FINE;
    default: return LN_SYNC_UNEXPECTED;
    }
}

static ln_sync_refusal frame(void *context, ln_sync_stream *stream, const ln_sync_header *header, const void *payload) {
    worker_link *link = context;
    (void)stream;
    link->heard_at = clock_of(link->worker);
    if (link->ending) return LN_SYNC_FINE;
    return header->type == LN_SYNC_DATA ? ln_worker_data(link, header) : control(link, header, payload);
}

static ln_sync_refusal place(void *context, ln_sync_stream *stream, const ln_sync_header *header, void **destination) {
    (void)stream;
    return ln_worker_place(context, header, destination);
}

static void released(void *context, ln_sync_stream *stream, uint64_t tag) {
    (void)stream;
    (void)tag;
    ln_worker_released(context);
}

bool ln_worker_send(worker_link *link, uint8_t type, uint64_t step, const void *payload, size_t size) {
    const ln_sync_header header = {.type = type, .step = step};
    return ln_sync_stream_control(link->stream, &header, payload, size);
}

/* ---- connections ------------------------------------------------------------------------------------------------ */

void ln_worker_end(worker_link *link, const linnet_error *why, bool fatal) {
    if (link->ending) return;
    link->ending = true;
    link->why = *why;
    ln_sync_at(&link->why, link->address);
    if (fatal && !link->worker->failure.code) {
        link->worker->failure = *why;
        if (!why->tensor[0]) ln_sync_at(&link->worker->failure, link->address);
    }
}

/* Begins anew what the connection that was lost had not brought to its end. */
static void restart(worker_link *link) {
    link->asked = link->missing = link->queued = link->released = 0;
    link->committed = link->sent = link->ahead = false;
    for (uint32_t i = 0; link->parts && i < link->manifest->count; i++) {
        worker_part *part = &link->parts[i];
        if (part->awaited && part->taken) part->version = LN_SYNC_NONE; /* torn */
        part->awaited = part->rows_awaited = false;
        part->taken = 0;
    }
}

void ln_worker_opened(worker_link *link) {
    const uint64_t now = clock_of(link->worker);
    if (link->opened) link->reconnects++;
    link->opened = true;
    link->state = WORKER_OPEN;
    link->attempts = 0;
    link->heard_at = now;
    link->beat_at = 0;
    restart(link);
}

ln_sync_wish ln_sync_worker_wish(const ln_sync_worker *worker, int index) {
    const worker_link *link = &worker->links[index];
    const bool asks = worker->number != LN_SYNC_NO_WORKER || worker->config.read_only || worker->lead == index;
    if (link->state != WORKER_APART)
        return link->ending || ln_sync_stream_failure(link->stream) ? LN_SYNC_WISH_CLOSE : LN_SYNC_WISH_KEEP;
    if (worker->failure.code || worker->leaving || !asks || clock_of(worker) < link->retry_at) return LN_SYNC_WISH_NONE;
    return LN_SYNC_WISH_CONNECT;
}

ln_sync_stream *ln_sync_worker_stream(const ln_sync_worker *worker, int link) { return worker->links[link].stream; }

void ln_sync_worker_connected(ln_sync_worker *worker, int index) {
    worker_link *link = &worker->links[index];
    link->state = WORKER_GREETING;
    link->ending = link->held = false;
    link->begun_at = link->heard_at = clock_of(worker);
    ln_worker_greet(link);
}

/* Full jitter: anything up to a bound that doubles, so that workers do not come back all at once. */
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
    const ln_sync_refusal failure = ln_sync_stream_failure(link->stream);
    const uint64_t now = clock_of(worker);
    linnet_error error;
    if (link->state == WORKER_OPEN || !link->lost_at) link->lost_at = now;
    if (!link->ending && failure) { /* we refused what came */
        ln_sync_fail(&error, LINNET_PROTOCOL_ERROR, "what the server sent is wrong: %s", ln_sync_refusal_name(failure));
        ln_sync_hint(&error, "if it comes again: is that address a server of this version of linnet?");
        why = &error;
        if (++link->failures >= FAILURES) ln_worker_end(link, why, true);
    }
    if (!link->ending && why && why->code == LINNET_NOT_AUTHENTICATED && !link->epoch) {
        error = *why; /* the key has never fitted: trying again does not help */
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
    ln_sync_stream_reset(link->stream);
    restart(link);
    link->retry_at = now + back_off(link);
    if (worker->work == WORKER_LEAVE) link->done = true; /* that is what leaving is for */
}

static void beat(worker_link *link, uint64_t now) {
    const ln_sync_beat beat = {.clock = now, .peer_clock = link->peer_clock, .received = link->peer_clock_at};
    unsigned char payload[LN_SYNC_BEAT_BYTES];
    ln_sync_beat_write(&beat, payload);
    if (ln_worker_send(link, LN_SYNC_HEARTBEAT, 0, payload, sizeof payload)) link->beat_at = now;
}

static void check_time(worker_link *link, uint64_t now) {
    linnet_error error;
    if (link->state == WORKER_GREETING && now - link->begun_at > HANDSHAKE_MS * LN_SYNC_MS) {
        ln_sync_fail(&error, LINNET_TIMED_OUT, "no answer to the greeting within %d s", HANDSHAKE_MS / 1000);
        ln_sync_hint(&error, "is that the address of a linnet server, and have both sides the same key?");
        ln_worker_end(link, &error, false);
    } else if (link->state == WORKER_OPEN && now - link->heard_at > link->lease) {
        ln_sync_fail(&error, LINNET_CONNECTION_LOST, "the server was silent for %llu ms",
                     (unsigned long long)((now - link->heard_at) / LN_SYNC_MS));
        ln_worker_end(link, &error, false);
    } else if (link->state == WORKER_OPEN && now - link->beat_at >= link->heartbeat) {
        beat(link, now);
    }
}

/* ---- the work --------------------------------------------------------------------------------------------------- */

static void go_on(worker_link *link) {
    if (link->done) return;
    switch (link->worker->work) {
    case WORKER_IDLE: break;
    case WORKER_AGREE: link->done = true; break;
    case WORKER_PULL: ln_worker_ask(link); break;
    case WORKER_ROWS: ln_worker_ask_rows(link); break;
    case WORKER_PUSH: ln_worker_push(link); break;
    case WORKER_SAVE: link->sent = link->sent || ln_worker_send(link, LN_SYNC_SNAPSHOT, 0, NULL, 0); break;
    case WORKER_LEAVE:
        link->sent = link->sent || ln_worker_send(link, LN_SYNC_BYE, 0, NULL, 0);
        link->done = link->sent && ln_sync_stream_idle(link->stream);
        break;
    }
}

void ln_sync_worker_advance(ln_sync_worker *worker) {
    const uint64_t now = clock_of(worker);
    for (int i = 0; i < worker->link_count; i++) {
        worker_link *link = &worker->links[i];
        if (link->state != WORKER_APART) check_time(link, now);
        if (link->state == WORKER_OPEN && !link->ending) go_on(link);
    }
}

void ln_worker_begin(ln_sync_worker *worker, worker_work work) {
    worker->work = work;
    worker->begun_at = clock_of(worker);
    for (int i = 0; i < worker->link_count; i++) {
        worker_link *link = &worker->links[i];
        link->done = link->acked = false;
        link->unsaved.code = 0;
        restart(link);
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
    static const char *const WORDS[] = {"nothing",    "to agree", "values", "rows", "an answer to a push",
                                        "a snapshot", ""};
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
                                   ? "the step waits for other workers: are all of them alive? else raise timeout_ms"
                                   : "is the server busy? else raise timeout_ms");
}

/* Why the link's part of the work can never be done, or OK. */
static linnet_status hopeless(const ln_sync_worker *worker, const worker_link *link, uint64_t now,
                              linnet_error *error) {
    const uint64_t since = link->lost_at > worker->begun_at ? link->lost_at : worker->begun_at;
    const uint64_t limit = (uint64_t)worker->config.timeout_ms * LN_SYNC_MS;
    if (link->state != WORKER_OPEN && now - since > (uint64_t)worker->config.lost_ms * LN_SYNC_MS)
        return out_of_reach(link, error);
    if (limit && now - worker->begun_at > limit) return too_late(worker, link, error);
    return LINNET_OK;
}

/* Nothing may come into memory that the caller will use for something else, and nothing be sent from there. */
static void give_up(ln_sync_worker *worker) {
    linnet_error error;
    ln_sync_fail(&error, LINNET_TIMED_OUT, "a call was given up");
    for (int i = 0; i < worker->link_count; i++) {
        worker_link *link = &worker->links[i];
        if (link->state != WORKER_APART && (link->missing || link->ahead || link->queued > link->released))
            ln_worker_end(link, &error, false);
    }
    worker->fresh = false;
    worker->work = WORKER_IDLE;
}

/* All links have done their part. */
static linnet_status conclude(ln_sync_worker *worker, linnet_error *error) {
    linnet_status status = LINNET_OK;
    switch (worker->work) {
    case WORKER_AGREE:
        status = ln_worker_cover(worker, error);
        worker->step = ln_worker_next(worker);
        break;
    case WORKER_PULL: ln_worker_pulled(worker); break;
    case WORKER_PUSH: ln_worker_pushed(worker); break;
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

bool ln_sync_worker_finished(ln_sync_worker *worker, linnet_status *status, linnet_error *error) {
    const uint64_t now = clock_of(worker);
    int left = 0;
    *status = (linnet_status)worker->failure.code;
    if (*status && error) *error = worker->failure;
    for (int i = 0; !*status && i < worker->link_count; i++) {
        if (worker->links[i].done) continue;
        left++;
        if (worker->work == WORKER_LEAVE) /* nobody waits for it for long */
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

uint64_t ln_worker_next(const ln_sync_worker *worker) {
    uint64_t next = LN_SYNC_NONE;
    for (int i = 0; i < worker->link_count; i++)
        if (worker->links[i].next < next) next = worker->links[i].next;
    return next;
}

static void sooner(uint64_t *deadline, uint64_t time) {
    if (time < *deadline) *deadline = time;
}

uint64_t ln_sync_worker_deadline(const ln_sync_worker *worker) {
    const uint64_t now = clock_of(worker);
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

/* ---- beginning and end ------------------------------------------------------------------------------------------ */

static linnet_status make_link(ln_sync_worker *worker, int index, const char *address, linnet_error *error) {
    worker_link *link = &worker->links[index];
    const ln_sync_handler handler = {.context = link, .place = place, .frame = frame, .released = released};
    const size_t bytes = ln_sync_stream_bytes(PLACES), length = strlen(address) + 1;
    void *memory = ln_worker_memory(worker, bytes);
    link->worker = worker;
    link->index = index;
    link->last_step = LN_SYNC_NONE;
    link->delay = -1;
    link->address = ln_worker_memory(worker, length);
    if (memory) link->stream = ln_sync_stream_init(memory, PLACES, &handler);
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
    worker->host = *host;
    worker->bytes = sizeof *worker;
    worker->loss_output = -1;
    worker->number = config->worker < 0 ? LN_SYNC_NO_WORKER : (uint32_t)config->worker;
    if (config->name) snprintf(worker->name, sizeof worker->name, "%s", config->name);
    host->random(host->context, &worker->incarnation, sizeof worker->incarnation);
    worker->links = ln_worker_memory(worker, (size_t)links * sizeof *worker->links);
    worker->link_infos = ln_worker_memory(worker, (size_t)links * sizeof *worker->link_infos);
    linnet_status status = worker->links && worker->link_infos
                               ? ln_worker_read_model(worker, error)
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
    free(worker->link_infos);
    free(worker);
}
