/* server_join.c - the server's side of the handshake: identifies the worker, assigns its number, and tells it the
 * current step. A connection belongs to a member only after READY, so a replayed recording cannot displace a member.
 * server_members.c has the table of members. */
#include "sync/server/server_join.h"

#include "net/bytes.h"
#include "net/error.h"
#include "net/stream.h"
#include "sync/codec/compress.h"
#include "sync/codec/manifest.h"
#include "sync/codec/messages.h"
#include "sync/server/barrier.h"
#include "sync/server/record.h"
#include "sync/server/server_members.h"
#include "sync/server/server_peers.h"
#include "sync/server/server_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- HELLO ------------------------------------------------------------------------------------------------------ */

enum { EPOCH_BITS = 53 }; /* epochs are milliseconds since 1970 (posix_storage.c) */

static ln_net_refusal deny(sync_connection *c, ln_net_refusal why, uint32_t detail, const char *text) {
    ln_sync_refuse_peer(c, why, detail, "%s", text);
    return why;
}

/* Refuses a process whose number another process has, and notes it for the status. */
static ln_net_refusal deny_rival(sync_connection *c, sync_member *m) {
    char text[96];
    m->rivals++;
    m->rival_at = c->server->now;
    memcpy(m->rival, c->peer, sizeof m->rival);
    snprintf(text, sizeof text, "worker %u is already connected from %.40s", (unsigned)c->claim, m->connection->peer);
    return deny(c, LN_NET_IN_USE, c->claim, text);
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

/* Chooses the number that the server assigns: the number that this process had before, or else the lowest free
 * number. */
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
    /* The group does not skip steps while a push waits in the open step. */
    const bool skips = s->config.staleness >= 0 && !(g && (g->live || g->committed));
    const uint64_t least = skips ? ln_sync_slowest(s) : 0;
    return g && g->step > least ? g->step : least;
}

ln_net_refusal ln_sync_take_hello(sync_connection *c, const ln_net_header *header, const void *payload) {
    static const unsigned char no_job[16];
    ln_sync_server *s = c->server;
    ln_sync_hello *hello = &c->hello;
    sync_member *m;
    char text[96];
    if (c->state != AWAIT_HELLO) return LN_NET_UNEXPECTED;
    if (!ln_sync_hello_read(hello, payload, header->length)) return LN_NET_MALFORMED;
    if (hello->lowest > LN_NET_VERSION || hello->highest < LN_NET_VERSION) {
        snprintf(text, sizeof text, "this server speaks version %d", (int)LN_NET_VERSION);
        return deny(c, LN_NET_BAD_VERSION, LN_NET_VERSION + 256 * LN_NET_VERSION, text);
    }
    if (hello->epoch >> EPOCH_BITS) return deny(c, LN_NET_MALFORMED, 0, "no server has the epoch that HELLO names");
    if (hello->role == LN_SYNC_PEER) return deny(c, LN_NET_UNEXPECTED, 0, "this is a server, not a ring");
    if (memcmp(hello->job, s->manifest->job, 16) &&
        !(hello->role == LN_SYNC_OBSERVER && !memcmp(hello->job, no_job, 16)))
        return deny(c, LN_NET_UNKNOWN_JOB, 0,
                    "this server trains another file; start server and workers with the same one");
    if (header->shard != s->manifest->shard && header->shard != 0xffff) {
        snprintf(text, sizeof text, "this is shard %u of %u", (unsigned)s->manifest->shard,
                 (unsigned)s->manifest->shards);
        return deny(c, LN_NET_UNKNOWN_JOB, s->manifest->shard, text);
    }
    c->claim = LN_NET_NO_WORKER;
    if (hello->role == LN_SYNC_WORKER) {
        c->claim = hello->worker == LN_NET_NO_WORKER ? choose_number(s, hello) : hello->worker;
        m = ln_sync_member(s, c->claim, false);
        if (m && m->connection && m->incarnation != hello->incarnation) return deny_rival(c, m);
    }
    if (hello->chunk > s->config.chunk) hello->chunk = s->config.chunk;
    hello->encodings = (hello->encodings & s->config.encodings) | 1u << LN_SYNC_PLAIN;
    if ((hello->encodings & LN_SYNC_PULL_ENCODINGS) == LN_SYNC_PULL_ENCODINGS) /* both: grants only one */
        hello->encodings &= ~(1u << (LN_SYNC_PULL_AS + LN_SYNC_BF16));
    s->host.random(s->host.context, c->nonce, sizeof c->nonce);
    c->state = ANNOUNCE;
    ln_net_stream_expect(c->stream, LN_NET_BIT(LN_SYNC_READY) | LN_NET_BIT(LN_SYNC_REFUSE));
    ln_sync_wake(c);
    return LN_NET_FINE;
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
    w.version = LN_NET_VERSION;
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
    unsigned char payload[LN_NET_CONTROL_MAX];
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

/* Tells whether the worker was here so long ago that the server no longer knows the outcome of its last push. */
static bool is_forgotten(const sync_connection *c) {
    const sync_member *m = ln_sync_member(c->server, c->claim, false);
    if (!c->hello.epoch || c->hello.epoch > c->server->forgot_epoch) return false;
    return !m || (m->incarnation && m->incarnation != c->hello.incarnation);
}

/* Refuses a worker that has an ACK of a step which this server has not made, although this server journals every step
 * before its ACK. The folder is therefore older than the acknowledged step, and nobody may continue from it
 * unnoticed. */
static ln_net_refusal refuse_ahead(sync_connection *c, uint64_t step) {
    linnet_error error;
    char text[LN_NET_REFUSE_TEXT];
    ln_sync_fail(&error, LINNET_CORRUPT, "acknowledged updates are missing in this server's folder");
    ln_sync_expected(&error, "a journal and a snapshot up to step %llu", (unsigned long long)c->hello.last_step);
    ln_sync_got(&error, "step %llu is next for the group of worker %u", (unsigned long long)step, (unsigned)c->claim);
    ln_sync_hint(&error,
                 "restore the folder's files, or end the workers and continue from the older state with --repair");
    snprintf(text, sizeof text, "step %llu was acknowledged to worker %u, but step %llu is next here",
             (unsigned long long)c->hello.last_step, (unsigned)c->claim, (unsigned long long)step);
    deny(c, LN_NET_BEHIND, 0, text);
    if (!c->server->config.repaired) ln_sync_fail_server(c->server, &error);
    return LN_NET_BEHIND;
}

static ln_net_refusal become_member(sync_connection *c) {
    ln_sync_server *s = c->server;
    sync_group *g, *left;
    sync_member *m;
    uint64_t step;
    linnet_error error;
    if (is_forgotten(c))
        return deny(c, LN_NET_FORGOTTEN, 0, "the worker was away for so long that the server has forgotten it");
    g = ln_sync_group(s, group_of(s, c->claim, &c->hello), false);
    step = g ? g->step : 0;
    if (s->storage.append && c->hello.last_step != LN_SYNC_NONE && c->hello.last_step >= step)
        return refuse_ahead(c, step);
    m = ln_sync_member(s, c->claim, true);
    g = m ? ln_sync_group(s, group_of(s, c->claim, &c->hello), true) : NULL;
    if (!g) return deny(c, LN_NET_FULL, 0, "the server has no room for another worker");
    step = step_of(s, g);
    if (m->connection && m->incarnation != c->hello.incarnation) return deny_rival(c, m);
    if (m->connection) { /* the same process has an older connection, which it has given up */
        sync_connection *old = m->connection;
        old->member = NULL;
        ln_sync_drop_peer(old);
        m->connection = NULL;
        if (!m->committed) ln_sync_discard(s, m, true);
    }
    if (m->group != g && m->committed)
        return deny(c, LN_NET_IN_USE, c->claim, "the worker's step is open in another group");
    left = m->group;
    if (!ln_sync_enter_group(g, m)) return deny(c, LN_NET_FULL, 0, "no memory for another worker");
    /* The worker was away. The other workers do not wait until it has caught up. */
    if (step > g->step && ln_sync_skip_to(s, g, step, &error)) {
        ln_sync_fail_server(s, &error);
        return LN_NET_SHUTTING_DOWN;
    }
    if (!m->live) m->from = g->committed ? g->step + 1 : g->step;
    m->live = true;
    m->parted = false;
    m->touched = s->sequence;
    m->connection = c;
    m->incarnation = c->hello.incarnation;
    m->heard = s->now;
    memcpy(m->name, c->hello.name, sizeof m->name);
    memcpy(m->peer, c->peer, sizeof m->peer);
    c->member = m;
    ln_sync_count_group(g);
    if (left && left != g) ln_sync_consider(s, left); /* the old group may have waited only for this worker */
    return LN_NET_FINE;
}

ln_net_refusal ln_sync_take_ready(sync_connection *c, const ln_net_header *header, const void *payload) {
    ln_sync_server *s = c->server;
    ln_sync_ready ready;
    unsigned char digest[16];
    ln_net_refusal why;
    if (c->state != AWAIT_READY) return LN_NET_UNEXPECTED;
    if (!ln_sync_ready_read(&ready, payload, header->length)) return LN_NET_MALFORMED;
    put64(digest, s->manifest->digest[0]);
    put64(digest + 8, s->manifest->digest[1]);
    if (memcmp(ready.server_nonce, c->nonce, 16))
        return deny(c, LN_NET_REPLAY, 0, "READY does not answer the WELCOME of this connection");
    if (memcmp(ready.manifest, digest, 16))
        return deny(c, LN_NET_MODEL_DIFFERS, 0, "the table of tensors was received differently than it was sent");
    /* Two masters would be worse than no server. But a peer that changes nothing cannot end the training of others. */
    if (c->hello.role == LN_SYNC_READER && c->hello.epoch > s->config.epoch)
        return deny(c, LN_NET_SUPERSEDED, 0, "the reader has seen a newer server of this shard");
    if (c->hello.role != LN_SYNC_OBSERVER && c->hello.epoch > s->config.epoch) {
        linnet_error error;
        memset(&error, 0, sizeof error);
        error.code = LINNET_SUPERSEDED;
        error.op_index = -1;
        snprintf(error.what, sizeof error.what, "a newer server has this shard");
        snprintf(error.expected, sizeof error.expected, "epoch %llu", (unsigned long long)s->config.epoch);
        snprintf(error.got, sizeof error.got, "a worker that knows epoch %llu", (unsigned long long)c->hello.epoch);
        snprintf(error.hint, sizeof error.hint, "give the workers one server per shard");
        ln_sync_fail_server(s, &error);
        return LN_NET_SUPERSEDED;
    }
    if (c->hello.role == LN_SYNC_WORKER && (why = become_member(c)) != LN_NET_FINE) return why;
    c->state = SERVING;
    c->heard = s->now;
    ln_net_stream_open(c->stream, ln_sync_job_number(s), c->claim, s->manifest->shard, c->hello.chunk);
    ln_net_stream_expect(c->stream, ln_sync_sent_by((ln_sync_role)c->hello.role));
    if (c->member && c->member->group->step != c->promised) { /* other members came or left after WELCOME */
        c->ack_step = c->member->group->step;
        c->ack_outcome = LN_SYNC_NO_OUTCOME;
        c->ack_due = true;
        ln_sync_wake(c);
    }
    return LN_NET_FINE;
}
