/* network.c - simulates TCP connections. Bytes arrive in order, late, in pieces of any size, and only while buffers
 * have room, until one end closes or the connection breaks. Connections may overtake one another. */
#include "sim.h"
#include "net/refusal.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "sync/server/server_connections.h"
#include "sync/worker/worker_core.h"

#include <stdlib.h>
#include <string.h>

enum { SEGMENTS = 256 };

static void empty(pipe *p) { p->begin = p->used = 0, p->first = p->count = 0; }

static void open_pipe(sim *s, pipe *p) {
    unsigned char *bytes = p->bytes ? p->bytes : malloc(PIPE);
    memset(p, 0, sizeof *p);
    p->bytes = bytes;
    p->capacity = sim_below(s, 4) ? 4096 + sim_below(s, PIPE - 4096) : 100 + sim_below(s, 3000);
}

void net_mend(connection *c) {
    c->to_server.capacity = c->to_worker.capacity = PIPE / 2;
    c->latency = c->jitter = 100 * US;
    c->per_byte = 0;
}

connection *net_connect(sim *s, int worker, int link, int shard) {
    for (int i = 0; i < CONNECTIONS; i++) {
        connection *c = &s->connections[i];
        if (c->used) continue;
        open_pipe(s, &c->to_server);
        open_pipe(s, &c->to_worker);
        c->used = c->worker_side = true;
        c->server_side = c->deaf = c->lost_silently = false;
        c->worker = worker, c->link = link, c->shard = shard;
        c->stream = NULL;
        c->server = NULL;
        c->latency = 20 * US + sim_below(s, sim_below(s, 8) ? 300 * US : 20 * MS);
        c->jitter = sim_below(s, c->latency + 1);
        c->per_byte = sim_below(s, 8) ? sim_below(s, 3) : sim_below(s, 300);
        if (s->now >= s->faults_end) net_mend(c);
        c->accept_at = s->now + c->latency;
        return c;
    }
    return NULL;
}

void net_put(sim *s, connection *c, pipe *p, const void *bytes, size_t size) {
    const unsigned char *from = bytes;
    const uint64_t last = p->count ? p->segments[(p->first + p->count - 1) % SEGMENTS].due : 0;
    uint64_t due = s->now + c->latency + sim_below(s, c->jitter + 1) + size * c->per_byte;
    if (due < last) due = last; /* never earlier than bytes that were sent before */
    for (size_t i = 0; i < size; i++) p->bytes[(p->begin + p->used + i) % PIPE] = from[i];
    p->used += size;
    p->segments[(p->first + p->count++) % SEGMENTS] = (struct segment){due, size};
}

/* Takes the bytes that the stream wants to send, if there is room. */
static bool send_from(sim *s, connection *c, ln_net_stream *stream, pipe *p) {
    ln_net_slice slices[16];
    size_t sent = 0;
    const int count = ln_net_stream_pending(stream, slices, 1 + (int)sim_below(s, 16));
    for (int i = 0; i < count && p->count < SEGMENTS - 1; i++) {
        size_t size = slices[i].size;
        if (size > p->capacity - p->used) size = p->capacity - p->used;
        if (size > 1 && sim_below(s, 8) == 0) size = 1 + sim_below(s, size);
        if (size == 0) break;
        net_put(s, c, p, slices[i].data, size);
        if (p == &c->to_server && c == s->recorded_from && s->recorded + size <= PIPE) {
            memcpy(s->recording + s->recorded, slices[i].data, size);
            s->recorded += size;
        }
        sent += size;
        if (size < slices[i].size) break;
    }
    ln_net_stream_sent(stream, sent);
    return sent > 0;
}

/* Delivers bytes that have arrived to the stream, or drops them. */
static bool deliver(sim *s, connection *c, pipe *p, ln_net_stream *stream) {
    bool moved = false;
    while (p->count && p->segments[p->first].due <= s->now && p->stalled_until <= s->now) {
        struct segment *segment = &p->segments[p->first];
        size_t size = segment->size;
        if (size > PIPE - p->begin) size = PIPE - p->begin; /* up to the end of the ring */
        if (stream) {
            void *space;
            size_t room;
            ln_net_stream_space(stream, &space, &room);
            if (room == 0) return moved;
            if (size > room) size = room;
            if (size > 1 && sim_below(s, 4) == 0) size = 1 + sim_below(s, size);
            memcpy(space, p->bytes + p->begin, size);
        }
        p->begin = (p->begin + size) % PIPE;
        p->used -= size;
        segment->size -= size;
        if (segment->size == 0) p->first = (p->first + 1) % SEGMENTS, p->count--;
        moved = true;
        if (!stream) continue;
        if (p == &c->to_server) ln_sync_server_heard(c->server->core, stream, s->now);
        ln_net_stream_received(stream, size);
        if (!ln_net_stream_failure(stream)) continue;
        sim_say(s, "%s refuses what worker %d's connection brings: %s",
                p == &c->to_server ? "the server" : "the worker", c->worker,
                ln_net_refusal_name(ln_net_stream_failure(stream)));
        break;
    }
    return moved;
}

static void close_end(sim *s, connection *c, pipe *out) {
    out->ended = true;
    out->ended_due = c->lost_silently ? UINT64_MAX : s->now + c->latency;
    if (!c->worker_side && !c->server_side && !c->accept_at) {
        c->used = false;
        if (s->recorded_from == c) s->recorded_from = NULL;
    }
}

void net_close_worker(sim *s, connection *c) {
    if (!c->worker_side) return;
    c->worker_side = false;
    if (c->worker >= 0 && s->worker[c->worker].connections[c->link] == c)
        s->worker[c->worker].connections[c->link] = NULL;
    empty(&c->to_worker);
    close_end(s, c, &c->to_server);
}

void net_close_server(sim *s, connection *c) {
    if (!c->server_side) return;
    c->server_side = false;
    c->stream = NULL;
    empty(&c->to_server);
    close_end(s, c, &c->to_worker);
}

void net_cut(sim *s, connection *c, bool silently) {
    s->cuts++;
    if (silently) { /* neither end receives more bytes or learns that the connection has ended */
        c->lost_silently = true;
        c->to_server.stalled_until = c->to_worker.stalled_until = UINT64_MAX;
        return;
    }
    /* Truncates the bytes in flight at a random position. */
    for (int way = 0; way < 2; way++) {
        pipe *p = way ? &c->to_server : &c->to_worker;
        uint64_t keep = sim_below(s, p->used + 1);
        int segments = 0;
        for (p->used = 0; segments < p->count && keep > 0; segments++) {
            struct segment *segment = &p->segments[(p->first + segments) % SEGMENTS];
            if (segment->size > keep) segment->size = keep;
            keep -= segment->size;
            p->used += segment->size;
        }
        p->count = segments;
        p->ended = true;
        p->ended_due = s->now + sim_below(s, 5 * MS);
    }
}

static bool at_end(const sim *s, const pipe *p) {
    return p->ended && p->ended_due <= s->now && (p->count == 0 || p->segments[p->first].due > s->now + 10 * MS);
}

static bool move_worker_end(sim *s, connection *c) {
    worker *w = c->worker >= 0 ? &s->worker[c->worker] : NULL;
    ln_net_stream *stream = w && w->core ? ln_sync_worker_stream(w->core, c->link) : NULL;
    bool moved = false;
    if (stream && !c->to_server.ended) moved |= send_from(s, c, stream, &c->to_server);
    if (!c->deaf) moved |= deliver(s, c, &c->to_worker, stream);
    if (!at_end(s, &c->to_worker)) return moved;
    net_close_worker(s, c);
    if (w && w->core) ln_sync_worker_lost(w->core, c->link, NULL);
    return true;
}

static void accept(sim *s, connection *c) {
    c->accept_at = 0;
    c->server = server_for(s, c->worker, c->shard);
    c->stream = c->server ? ln_sync_server_connect(c->server->core, "simulated", s->now) : NULL;
    c->server_side = c->stream != NULL;
    if (c->stream) return;
    c->to_worker.ended = true; /* refused */
    c->to_worker.ended_due = s->now + c->latency;
    if (!c->worker_side) c->used = false;
}

static bool move_server_end(sim *s, connection *c) {
    ln_sync_server *core = c->server->core;
    bool moved = false;
    if (ln_sync_server_resumed(core, c->stream)) ln_net_stream_received(c->stream, 0), moved = true;
    moved |= deliver(s, c, &c->to_server, c->stream);
    if (!c->to_worker.ended) {
        ln_sync_server_fill(core, c->stream);
        moved |= send_from(s, c, c->stream, &c->to_worker);
    }
    const bool over = ln_sync_server_closing(core, c->stream) && ln_net_stream_idle(c->stream);
    if (!over && !at_end(s, &c->to_server)) return moved;
    ln_sync_server_disconnect(core, c->stream, s->now);
    net_close_server(s, c);
    return true;
}

bool net_move(sim *s) {
    bool moved = false;
    const int first = (int)sim_below(s, CONNECTIONS);
    for (int k = 0; k < CONNECTIONS; k++) {
        connection *c = &s->connections[(first + k) % CONNECTIONS];
        if (c->used && c->accept_at && c->accept_at <= s->now) accept(s, c), moved = true;
        if (c->used && c->worker_side) moved |= move_worker_end(s, c);
        if (c->used && c->server_side) moved |= move_server_end(s, c);
    }
    return moved;
}

static void sooner(uint64_t *next, uint64_t time) {
    if (time < *next) *next = time;
}

uint64_t net_next(const sim *s) {
    uint64_t next = UINT64_MAX;
    for (int i = 0; i < CONNECTIONS; i++) {
        const connection *c = &s->connections[i];
        if (!c->used) continue;
        if (c->accept_at) sooner(&next, c->accept_at);
        for (int way = 0; way < 2; way++) {
            const pipe *p = way ? &c->to_server : &c->to_worker;
            if (!(way ? c->server_side : c->worker_side)) continue;
            const uint64_t head = p->count ? p->segments[p->first].due : UINT64_MAX;
            const uint64_t due = head > p->stalled_until ? head : p->stalled_until;
            if (p->count && due > s->now) sooner(&next, due);
            if (p->ended && p->ended_due > s->now) sooner(&next, p->ended_due);
        }
    }
    return next;
}

void net_free(sim *s) {
    for (int i = 0; i < CONNECTIONS; i++) {
        free(s->connections[i].to_server.bytes);
        free(s->connections[i].to_worker.bytes);
    }
}
