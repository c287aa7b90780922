/* server_join.c - the handshake as the server sees it: who comes, which number it gets, and where it stands.
 * A connection becomes that of a member with READY, not before: what was recorded cannot put anyone out. */
#include "sync/bytes.h"
#include "sync/compress.h"
#include "sync/server_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t ln_sync_job_number(const ln_sync_server *s) { return get64(s->manifest->job); }

/* ---- members and groups ----------------------------------------------------------------------------------------- */

static void *room_for(void *array, uint32_t *room, uint32_t count) {
    const uint32_t wanted = *room ? 2 * *room : 8;
    void *larger;
    if (count < *room) return array;
    larger = realloc(array, wanted * sizeof(void *));
    if (larger) *room = wanted;
    return larger;
}

sync_member *ln_sync_member(ln_sync_server *s, uint32_t id, bool make) {
    uint32_t low = 0, high = s->member_count;
    sync_member *m;
    void *array;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (s->members[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < s->member_count && s->members[low]->id == id) return s->members[low];
    if (!make || s->member_count / 4 >= s->config.max_streams) return NULL;
    array = room_for(s->members, &s->member_room, s->member_count);
    if (!array) return NULL;
    s->members = array;
    m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->id = id;
    m->finite = true;
    memmove(s->members + low + 1, s->members + low, (s->member_count - low) * sizeof *s->members);
    s->members[low] = m;
    s->member_count++;
    return m;
}

sync_group *ln_sync_group(ln_sync_server *s, uint32_t id, bool make) {
    sync_group *g;
    void *array;
    for (uint32_t i = 0; i < s->group_count; i++)
        if (s->groups[i]->id == id) return s->groups[i];
    if (!make || s->group_count / 4 >= s->config.max_streams) return NULL; /* whoever joins may name one */
    array = room_for(s->groups, &s->group_room, s->group_count);
    if (!array) return NULL;
    s->groups = array;
    g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->id = id;
    return s->groups[s->group_count++] = g;
}

static void leave_group(sync_member *m) {
    sync_group *g = m->group;
    uint32_t i = 0;
    if (!g) return;
    while (g->members[i] != m) i++;
    memmove(g->members + i, g->members + i + 1, (g->count - i - 1) * sizeof *g->members);
    g->count--;
    m->group = NULL;
    ln_sync_count_group(g);
}

bool ln_sync_enter_group(sync_group *g, sync_member *m) {
    uint32_t i;
    void *array;
    if (m->group == g) return true;
    array = room_for(g->members, &g->room, g->count);
    if (!array) return false;
    g->members = array;
    leave_group(m);
    for (i = g->count; i > 0 && g->members[i - 1]->id > m->id; i--) g->members[i] = g->members[i - 1];
    g->members[i] = m;
    g->count++;
    m->group = g;
    return true;
}

/* ---- HELLO ------------------------------------------------------------------------------------------------------ */

static ln_sync_refusal deny(sync_connection *c, ln_sync_refusal why, uint32_t detail, const char *text) {
    ln_sync_refuse_peer(c, why, detail, "%s", text);
    return why;
}

static bool number_is_free(const ln_sync_server *s, uint32_t id) {
    sync_member *m = ln_sync_member((ln_sync_server *)s, id, false);
    if (m && (m->live || m->connection)) return false;
    for (uint32_t i = 0; i < s->connection_count; i++) {
        const sync_connection *c = s->connections[i];
        if ((c->state == ANNOUNCE || c->state == AWAIT_READY) && !c->closing && c->claim == id) return false;
    }
    return true;
}

/* The number that the server gives: the one this process had, else the lowest that is free. */
static uint32_t choose_number(const ln_sync_server *s, const ln_sync_hello *hello) {
    for (uint32_t i = 0; i < s->member_count; i++)
        if (s->members[i]->incarnation == hello->incarnation) return s->members[i]->id;
    for (uint32_t id = 0;; id++)
        if (number_is_free(s, id)) return id;
}

static uint32_t group_of(const ln_sync_server *s, uint32_t claim, const ln_sync_hello *hello) {
    return s->config.asynchronous ? claim : hello->group;
}

static uint64_t step_of(const ln_sync_server *s, const sync_group *g) {
    /* Not over a push that waits in the open step. */
    const bool skips = s->config.staleness >= 0 && !(g && (g->live || g->committed));
    const uint64_t least = skips ? ln_sync_slowest(s) : 0;
    return g && g->step > least ? g->step : least;
}

ln_sync_refusal ln_sync_take_hello(sync_connection *c, const ln_sync_header *header, const void *payload) {
    static const unsigned char no_job[16];
    ln_sync_server *s = c->server;
    ln_sync_hello *hello = &c->hello;
    const sync_member *m;
    char text[96];
    if (c->state != AWAIT_HELLO) return LN_SYNC_UNEXPECTED;
    if (!ln_sync_hello_read(hello, payload, header->length)) return LN_SYNC_MALFORMED;
    if (hello->lowest > LN_SYNC_VERSION || hello->highest < LN_SYNC_VERSION) {
        snprintf(text, sizeof text, "this server speaks version %d", (int)LN_SYNC_VERSION);
        return deny(c, LN_SYNC_BAD_VERSION, LN_SYNC_VERSION + 256 * LN_SYNC_VERSION, text);
    }
    if (hello->role == LN_SYNC_PEER) return deny(c, LN_SYNC_UNEXPECTED, 0, "this is a server, no ring");
    if (memcmp(hello->job, s->manifest->job, 16) &&
        !(hello->role == LN_SYNC_OBSERVER && !memcmp(hello->job, no_job, 16)))
        return deny(c, LN_SYNC_UNKNOWN_JOB, 0, "this server trains another file: both sides need the same one");
    if (header->shard != s->manifest->shard && header->shard != 0xffff) {
        snprintf(text, sizeof text, "this is shard %u of %u", (unsigned)s->manifest->shard,
                 (unsigned)s->manifest->shards);
        return deny(c, LN_SYNC_UNKNOWN_JOB, s->manifest->shard, text);
    }
    c->claim = LN_SYNC_NO_WORKER;
    if (hello->role == LN_SYNC_WORKER) {
        c->claim = hello->worker == LN_SYNC_NO_WORKER ? choose_number(s, hello) : hello->worker;
        m = ln_sync_member(s, c->claim, false);
        if (m && m->connection && m->incarnation != hello->incarnation) {
            snprintf(text, sizeof text, "worker %u is connected from %.40s", (unsigned)c->claim, m->connection->peer);
            return deny(c, LN_SYNC_IN_USE, c->claim, text);
        }
    }
    if (hello->chunk > s->config.chunk) hello->chunk = s->config.chunk;
    hello->encodings = (hello->encodings & s->config.encodings) | 1u << LN_SYNC_PLAIN;
    s->host.random(s->host.context, c->nonce, sizeof c->nonce);
    c->state = ANNOUNCE;
    ln_sync_stream_expect(c->stream, 1u << LN_SYNC_READY | 1u << LN_SYNC_REFUSE);
    ln_sync_wake(c);
    return LN_SYNC_FINE;
}

/* ---- WELCOME, TENSORS ------------------------------------------------------------------------------------------- */

static bool send_welcome(sync_connection *c) {
    const ln_sync_server *s = c->server;
    const sync_member *m = ln_sync_member(c->server, c->claim, false);
    const sync_group *g = ln_sync_group(c->server, group_of(s, c->claim, &c->hello), false);
    const uint32_t beat =
        c->hello.heartbeat && c->hello.heartbeat < s->config.lease / 3 ? c->hello.heartbeat : s->config.heartbeat;
    unsigned char bytes[LN_SYNC_WELCOME_BYTES];
    ln_sync_welcome w;
    memset(&w, 0, sizeof w);
    w.version = LN_SYNC_VERSION;
    w.flags = (uint8_t)(LN_SYNC_WELCOME_AHEAD | (s->config.asynchronous ? 0 : LN_SYNC_WELCOME_SYNCHRONOUS));
    w.shard = s->manifest->shard;
    w.shards = s->manifest->shards;
    w.encodings = c->hello.encodings;
    w.worker = c->claim;
    memcpy(w.nonce, c->hello.nonce, 16);
    memcpy(w.server_nonce, c->nonce, 16);
    w.epoch = s->config.epoch;
    w.step = c->promised = step_of(s, g);
    w.parameters = s->version;
    w.applied = LN_SYNC_NONE;
    if (m && m->decided && m->outcome == LN_SYNC_APPLIED) w.applied = m->last;
    w.tensors = s->manifest->count;
    w.chunk = c->hello.chunk;
    w.heartbeat = beat;
    w.lease = s->config.lease;
    ln_sync_welcome_write(&w, bytes);
    return ln_sync_tell(c, LN_SYNC_WELCOME, 0, bytes, sizeof bytes);
}

void ln_sync_announce(sync_connection *c) {
    unsigned char payload[LN_SYNC_CONTROL_MAX];
    if (!c->welcomed && !(c->welcomed = send_welcome(c))) return;
    while (c->announced < c->server->manifest->count) {
        uint32_t next = c->announced;
        const size_t bytes = ln_sync_manifest_payload(c->server->manifest, &next, payload);
        if (!ln_sync_tell(c, LN_SYNC_TENSORS, 0, payload, bytes)) return;
        c->announced = next;
    }
    c->state = AWAIT_READY;
}

/* ---- READY ------------------------------------------------------------------------------------------------------ */

static ln_sync_refusal become_member(sync_connection *c) {
    ln_sync_server *s = c->server;
    sync_member *m = ln_sync_member(s, c->claim, true);
    sync_group *g = m ? ln_sync_group(s, group_of(s, c->claim, &c->hello), true) : NULL, *left;
    const uint64_t step = step_of(s, g);
    linnet_error error;
    if (!g) return deny(c, LN_SYNC_FULL, 0, "no room for another worker");
    if (m->connection && m->incarnation != c->hello.incarnation)
        return deny(c, LN_SYNC_IN_USE, c->claim, "a worker of that number is connected");
    if (m->connection) { /* this process, over a connection that it gave up */
        sync_connection *old = m->connection;
        old->member = NULL;
        ln_sync_drop_peer(old);
        m->connection = NULL;
        if (!m->committed) ln_sync_discard(s, m, true);
    }
    if (m->group != g && m->committed) return deny(c, LN_SYNC_IN_USE, c->claim, "its step is open in another group");
    left = m->group;
    if (!ln_sync_enter_group(g, m)) return deny(c, LN_SYNC_FULL, 0, "no memory for another worker");
    /* It was away: the others are not to wait for it to catch up. */
    if (step > g->step && ln_sync_skip_to(s, g, step, &error)) {
        ln_sync_fail_server(s, &error);
        return LN_SYNC_SHUTTING_DOWN;
    }
    if (!m->live) m->from = g->committed ? g->step + 1 : g->step;
    m->live = true;
    m->connection = c;
    m->incarnation = c->hello.incarnation;
    m->heard = s->now;
    memcpy(m->name, c->hello.name, sizeof m->name);
    memcpy(m->peer, c->peer, sizeof m->peer);
    c->member = m;
    ln_sync_count_group(g);
    if (left && left != g) ln_sync_consider(s, left); /* which may have waited for this one alone */
    return LN_SYNC_FINE;
}

static uint32_t allowed(uint16_t role) {
    const uint32_t all = 1u << LN_SYNC_REFUSE | 1u << LN_SYNC_HEARTBEAT | 1u << LN_SYNC_STATUS | 1u << LN_SYNC_BYE |
                         1u << LN_SYNC_SNAPSHOT;
    if (role == LN_SYNC_OBSERVER) return all & ~(1u << LN_SYNC_SNAPSHOT);
    if (role == LN_SYNC_READER) return all | 1u << LN_SYNC_PULL | 1u << LN_SYNC_ROWS;
    return LN_SYNC_FROM_WORKER;
}

ln_sync_refusal ln_sync_take_ready(sync_connection *c, const ln_sync_header *header, const void *payload) {
    ln_sync_server *s = c->server;
    ln_sync_ready ready;
    unsigned char digest[16];
    ln_sync_refusal why;
    if (c->state != AWAIT_READY) return LN_SYNC_UNEXPECTED;
    if (!ln_sync_ready_read(&ready, payload, header->length)) return LN_SYNC_MALFORMED;
    put64(digest, s->manifest->digest[0]);
    put64(digest + 8, s->manifest->digest[1]);
    if (memcmp(ready.server_nonce, c->nonce, 16))
        return deny(c, LN_SYNC_REPLAY, 0, "this is no answer to what was said on this connection");
    if (memcmp(ready.manifest, digest, 16))
        return deny(c, LN_SYNC_MODEL_DIFFERS, 0, "the table of tensors came over otherwise than it was sent");
    if (c->hello.role != LN_SYNC_OBSERVER && c->hello.epoch > s->config.epoch) { /* whoever looks on trains nothing */
        linnet_error error;
        memset(&error, 0, sizeof error);
        error.code = LINNET_SUPERSEDED;
        error.op_index = -1;
        snprintf(error.what, sizeof error.what, "a later server has this shard");
        snprintf(error.expected, sizeof error.expected, "epoch %llu", (unsigned long long)s->config.epoch);
        snprintf(error.got, sizeof error.got, "a worker that knows epoch %llu", (unsigned long long)c->hello.epoch);
        snprintf(error.hint, sizeof error.hint, "workers are to be given one server per shard");
        ln_sync_fail_server(s, &error);
        return LN_SYNC_SUPERSEDED;
    }
    if (c->hello.role == LN_SYNC_WORKER && (why = become_member(c)) != LN_SYNC_FINE) return why;
    c->state = SERVING;
    c->heard = s->now;
    ln_sync_stream_open(c->stream, ln_sync_job_number(s), c->claim, s->manifest->shard, c->hello.chunk);
    ln_sync_stream_expect(c->stream, allowed(c->hello.role));
    if (c->member && c->member->group->step != c->promised) { /* others came or went since WELCOME */
        c->ack_step = c->member->group->step;
        c->ack_outcome = LN_SYNC_NO_OUTCOME;
        c->ack_due = true;
        ln_sync_wake(c);
    }
    return LN_SYNC_FINE;
}
