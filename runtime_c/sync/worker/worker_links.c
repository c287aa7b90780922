/* worker_links.c - what every part of a worker does with its links: sends, ends, begins again, keeps them alive. */
#include "sync/worker/worker_links.h"

#include "net/error.h"
#include "net/stream_send.h"
#include "sync/worker/worker_state.h"

uint64_t ln_worker_clock(const ln_sync_worker *worker) { return worker->host.clock(worker->host.context); }

bool ln_worker_send(worker_link *link, uint8_t type, uint64_t step, const void *payload, size_t size) {
    const ln_net_header header = {.type = type, .step = step};
    return ln_net_stream_control(link->stream, &header, payload, size);
}

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

/* Restarts the work that the lost connection had not finished. */
void ln_worker_restart(worker_link *link) {
    link->asked = link->missing = link->queued = link->released = 0;
    link->committed = link->sent = link->ahead = false;
    for (uint32_t i = 0; link->parts && i < link->manifest->count; i++) {
        worker_part *part = &link->parts[i];
        if (part->awaited && part->taken) part->version = LN_SYNC_NONE; /* only part of the value arrived */
        part->awaited = part->rows_awaited = false;
        part->taken = 0;
    }
}

void ln_worker_opened(worker_link *link) {
    const uint64_t now = ln_worker_clock(link->worker);
    if (link->opened) link->reconnects++;
    link->opened = true;
    link->state = WORKER_OPEN;
    link->attempts = link->told = 0;
    link->heard_at = now;
    link->beat_at = 0;
    ln_worker_restart(link);
}

static void beat(worker_link *link, uint64_t now) {
    const ln_sync_heartbeat beat = {.clock = now, .peer_clock = link->peer_clock, .received = link->peer_clock_at};
    unsigned char payload[LN_SYNC_HEARTBEAT_BYTES];
    ln_sync_heartbeat_write(&beat, payload);
    if (ln_worker_send(link, LN_SYNC_HEARTBEAT, 0, payload, sizeof payload)) link->beat_at = now;
}

void ln_worker_check_time(worker_link *link, uint64_t now) {
    linnet_error error;
    if (link->state == WORKER_GREETING && now - link->begun_at > LN_SYNC_HANDSHAKE_MS * LN_SYNC_MS) {
        ln_sync_fail(&error, LINNET_TIMED_OUT, "the server did not answer the greeting within %d s",
                     LN_SYNC_HANDSHAKE_MS / 1000);
        ln_sync_hint(&error, "is this the address of a linnet server, and do both sides have the same key?");
        ln_worker_end(link, &error, false);
    } else if (link->state == WORKER_OPEN && now - link->heard_at > link->lease) {
        ln_sync_fail(&error, LINNET_CONNECTION_LOST, "the server was silent for %llu ms",
                     (unsigned long long)((now - link->heard_at) / LN_SYNC_MS));
        ln_worker_end(link, &error, false);
    } else if (link->state == WORKER_OPEN && now - link->beat_at >= link->heartbeat) {
        beat(link, now);
    }
}

/* ---- all links --------------------------------------------------------------------------------------------------- */

void ln_worker_begin(ln_sync_worker *worker, worker_work work) {
    worker->work = work;
    worker->begun_at = ln_worker_clock(worker);
    worker->interrupted = false;
    for (int i = 0; i < worker->link_count; i++) {
        worker_link *link = &worker->links[i];
        link->done = link->acked = false;
        link->unsaved.code = 0;
        ln_worker_restart(link);
    }
}

uint64_t ln_worker_next(const ln_sync_worker *worker) {
    uint64_t next = LN_SYNC_NONE;
    for (int i = 0; i < worker->link_count; i++)
        if (worker->links[i].next < next) next = worker->links[i].next;
    return next;
}
