/* fuzz_sync_server.c - feeds changed sessions to the core of a server with several connections while time passes. The
 * server must stay within its memory, send valid frames, and serve an honest worker in between as if nothing had
 * happened. usage: fuzz_sync_server COUNT SEED. Build it with sanitizers, which end it with a status if they find
 * anything. */
#include "net/refusal.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "sync/codec/manifest.h"
#include "sync/codec/messages.h"
#include "sync/server/server_connections.h"
#include "sync/server/server_core.h"
#include "sync/server/server_peers.h"
#include "sync/server/server_state.h"
#include "sync_frames.h"

#include <math.h>

enum { OPEN = 6, LIVES = 500, HONEST = 40, MOST = 200000 };
static const unsigned char job_digest[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

/* One connection: the server's stream, and a peer that checks what the server sends. */
typedef struct client {
    ln_net_stream *stream, *peer;
    bool welcomed;
    ln_sync_welcome welcome;
    int acks, applied;
    long data;
} client;

typedef struct fuzz {
    frames f;
    ln_sync_manifest *manifest;
    ln_sync_server *server;
    float *value[FRAMES_TENSORS], *gradient[FRAMES_TENSORS];
    int64_t *ids;
    uint64_t now;
    client clients[OPEN];
    long frames, messages, refused[32], fine, updates;
} fuzz;

static void fail(const fuzz *z, const char *what) {
    printf("fuzz_sync_server: %s; random state %llx\n", what, (unsigned long long)z->f.state);
    exit(4);
}

/* ---- what the server needs --------------------------------------------------------------------------------------- */

static uint64_t clock_of(void *context) { return ((fuzz *)context)->now; }

static void random_of(void *context, void *bytes, size_t size) { frames_fill(&((fuzz *)context)->f, bytes, size); }

static void *value_of(void *context, uint32_t tensor, bool write) {
    (void)write;
    return ((fuzz *)context)->value[tensor];
}

static linnet_status prepare(void *context, const uint64_t *rows, linnet_error *error) {
    (void)error;
    if (rows[2] > frames_tensors[2].rows) fail(context, "an update with too many rows");
    return LINNET_OK;
}

static void place(void *context, uint32_t tensor, int64_t **ids, void **gradient) {
    fuzz *z = context;
    *ids = z->ids;
    *gradient = z->gradient[tensor];
}

static linnet_status update(void *context, linnet_error *error) {
    fuzz *z = context;
    (void)error;
    z->updates++;
    for (uint64_t i = 0; i < frames_tensors[1].rows; i++)
        if (!isfinite(z->gradient[1][i])) fail(z, "an update with what is not finite");
    return LINNET_OK;
}

static void start(fuzz *z) {
    const ln_sync_apply apply = {z, value_of, prepare, place, update, NULL};
    const ln_sync_host host = {z, clock_of, random_of};
    const bool asynchronous = frames_below(&z->f, 2);
    ln_sync_server_config config = {.workers = asynchronous ? 1 : OPEN,
                                    .quorum = asynchronous ? 0 : 1,
                                    .elastic = true,
                                    .asynchronous = asynchronous,
                                    .staleness = -1,
                                    .chunk = FRAMES_CHUNK,
                                    .max_streams = OPEN + 1,
                                    .max_bytes = MOST,
                                    .batch = 100,
                                    .epoch = 5,
                                    .heartbeat = 1000,
                                    .encodings = (uint32_t)frames_below(&z->f, 64) | (uint32_t)frames_below(&z->f, 4)
                                                                                         << 17};
    linnet_error error;
    if (ln_sync_server_new(z->manifest, &config, &apply, NULL, &host, &z->server, &error)) fail(z, error.what);
}

/* ---- clients ---------------------------------------------------------------------------------------------------- */

static ln_net_refusal peer_place(void *context, ln_net_stream *stream, const ln_net_header *header,
                                 void **destination) {
    (void)context, (void)stream, (void)header, (void)destination;
    return LN_NET_FINE;
}

static ln_net_refusal peer_frame(void *context, ln_net_stream *stream, const ln_net_header *header,
                                 const void *payload) {
    client *c = context;
    ln_sync_ack ack;
    (void)stream;
    if (header->type == LN_SYNC_WELCOME) c->welcomed = ln_sync_welcome_read(&c->welcome, payload, header->length);
    c->data += header->type == LN_SYNC_DATA;
    if (header->type == LN_SYNC_ACK && ln_sync_ack_read(&ack, payload, header->length)) {
        c->acks++;
        c->applied += ack.outcome == LN_SYNC_APPLIED;
    }
    return LN_NET_FINE;
}

static void peer_released(void *context, ln_net_stream *stream, uint64_t tag) {
    (void)context, (void)stream, (void)tag;
}

static void take_answers(fuzz *z, client *c, size_t most) {
    ln_net_slice slices[16];
    size_t sent = 0;
    ln_sync_server_fill(z->server, c->stream);
    const int count = ln_net_stream_pending(c->stream, slices, 16);
    for (int i = 0; i < count && sent < most; i++) {
        const size_t size = slices[i].size < most - sent ? slices[i].size : most - sent;
        if (ln_net_stream_feed(c->peer, slices[i].data, size)) fail(z, "sent what a peer refuses");
        sent += size;
    }
    ln_net_stream_sent(c->stream, sent);
}

static void take_all(fuzz *z, client *c) {
    for (int i = 0; i < 50; i++) take_answers(z, c, SIZE_MAX);
}

static void leave(fuzz *z, client *c) {
    if (!c->stream) return;
    ln_sync_server_disconnect(z->server, c->stream, z->now);
    c->stream = NULL;
}

/* Feeds the frames to the server in pieces; its answers come out in between. */
static void feed(fuzz *z, client *c, bool whole) {
    frames *f = &z->f;
    for (size_t at = 0; at < f->size && !ln_net_stream_failure(c->stream);) {
        void *space;
        size_t room, part = whole || frames_below(f, 3) ? f->size - at : 1 + frames_below(f, 200);
        if (ln_sync_server_resumed(z->server, c->stream)) ln_net_stream_received(c->stream, 0);
        ln_net_stream_space(c->stream, &space, &room);
        if (room == 0) break; /* paused: no memory at the moment */
        if (part > room) part = room;
        if (part > f->size - at) part = f->size - at;
        memcpy(space, f->bytes + at, part);
        at += part;
        ln_sync_server_heard(z->server, c->stream, z->now);
        ln_net_stream_received(c->stream, part);
        if (whole || frames_below(f, 6) == 0) take_answers(z, c, whole ? SIZE_MAX : frames_below(f, 9000));
    }
    f->count = 0;
    f->size = 0;
}

/* Opens a connection up to READY. Returns false if there was no answer. */
static bool greet(fuzz *z, client *c, uint32_t worker, bool honest) {
    frames *f = &z->f;
    ln_sync_ready ready;
    unsigned char payload[LN_SYNC_READY_BYTES];
    const ln_net_handler handler = {c, peer_place, peer_frame, peer_released};
    if (!c->peer) c->peer = malloc(ln_net_stream_bytes(1));
    ln_net_stream_init(c->peer, 1, &ln_sync_protocol, &handler);
    c->stream = ln_sync_server_connect(z->server, "fuzzed", z->now);
    if (!c->stream) fail(z, "no room for a connection");
    c->welcomed = false;
    c->acks = c->applied = 0;
    f->worker = worker;
    f->shard = honest || frames_below(f, 2) ? 0xffff : 0;
    frames_hello(f, job_digest);
    if (!honest && frames_below(f, 10) == 0) frames_change(f);
    feed(z, c, honest);
    take_all(z, c);
    if (!c->welcomed) return false;
    f->worker = c->welcome.worker, f->shard = c->welcome.shard, f->step = c->welcome.step;
    memcpy(ready.server_nonce, c->welcome.server_nonce, 16);
    put64(ready.manifest, z->manifest->digest[0]);
    put64(ready.manifest + 8, z->manifest->digest[1]);
    ln_sync_ready_write(&ready, payload);
    frames_add(f, frames_of(LN_SYNC_READY, 0, 0), payload, sizeof payload);
    ln_net_stream_open(c->peer, f->job, f->worker, f->shard, FRAMES_CHUNK);
    ln_net_stream_expect(c->peer, ln_sync_sent_by(LN_SYNC_SERVER));
    return true;
}

/* Makes a whole valid step, which the other peers must not disturb. */
static void honest(fuzz *z) {
    frames *f = &z->f;
    client *c = &z->clients[0];
    ln_sync_commit commit = {.pushes = FRAMES_TENSORS, .weight = 1, .loss = 1};
    unsigned char payload[LN_NET_CONTROL_MAX], rows[8 * 3], zeros[12000] = {0};
    leave(z, c);
    if (!greet(z, c, 1000 + (uint32_t)(z->frames % 7), true)) fail(z, "an honest worker is not welcome");
    for (uint32_t t = 0; t < FRAMES_TENSORS; t++) {
        const ln_sync_pull pull = {.tensor = t, .version = LN_SYNC_NONE};
        ln_sync_pull_write(&pull, payload + t * LN_SYNC_PULL_BYTES);
    }
    frames_add(f, frames_of(LN_SYNC_PULL, 0, 0), payload, FRAMES_TENSORS * LN_SYNC_PULL_BYTES);
    feed(z, c, true);
    take_all(z, c);
    if (!c->data) fail(z, "an honest worker gets no values");
    for (uint32_t t = 0; t < FRAMES_TENSORS; t++) {
        ln_net_header header = frames_of(LN_SYNC_PUSH, f->step, t);
        uint64_t size = frames_tensor_bytes(t);
        if (frames_tensors[t].kind == LN_SYNC_SPARSE) {
            for (int i = 0; i < 3; i++) put64(rows + 8 * i, (uint64_t)i * 7);
            frames_message(f, frames_of(LN_SYNC_IDS, f->step, t), rows, sizeof rows);
            header.flags = LN_SYNC_FLAG_ROWS;
            size = 3 * 4 * frames_tensors[t].width;
        }
        frames_message(f, header, zeros, size);
    }
    ln_sync_commit_write(&commit, payload);
    frames_add(f, frames_of(LN_SYNC_COMMIT, f->step, 0), payload, LN_SYNC_COMMIT_BYTES);
    feed(z, c, true);
    take_all(z, c);
    if (c->acks != 1 || c->applied != 1) fail(z, "an honest worker's push is not applied");
    leave(z, c);
}

static void hostile(fuzz *z) {
    frames *f = &z->f;
    client *c = &z->clients[1 + frames_below(f, OPEN - 1)];
    leave(z, c);
    if (frames_below(f, 50) == 0) { /* no HELLO at all */
        const ln_net_handler handler = {c, peer_place, peer_frame, peer_released};
        if (!c->peer) c->peer = malloc(ln_net_stream_bytes(1));
        ln_net_stream_init(c->peer, 1, &ln_sync_protocol, &handler);
        c->stream = ln_sync_server_connect(z->server, "fuzzed", z->now);
        f->size = frames_below(f, 300);
        frames_fill(f, f->bytes, f->size);
    } else if (greet(z, c, frames_below(f, 3) ? (uint32_t)frames_below(f, 5) : LN_NET_NO_WORKER, false)) {
        for (uint64_t n = frames_below(f, 5); n > 0; n--) frames_from_worker(f);
        frames_change(f);
    }
    feed(z, c, false);
    const ln_net_refusal why = ln_net_stream_failure(c->stream);
    z->refused[why < 32 ? why : 31]++;
    z->fine += why == LN_NET_FINE;
    if (frames_below(f, 2)) take_answers(z, c, frames_below(f, 100000));
    if (frames_below(f, 2)) leave(z, c);
    z->now += frames_below(f, 4) ? frames_below(f, 50) * 1000000 : frames_below(f, 2000) * 1000000;
    ln_sync_server_tick(z->server, z->now);
    while (ln_sync_server_woken(z->server)) continue;
    for (int i = 0; i < OPEN; i++)
        if (z->clients[i].stream && ln_sync_server_closing(z->server, z->clients[i].stream)) leave(z, &z->clients[i]);
    if (ln_sync_server_failure(z->server, NULL)) {
        /* A worker that knows a newer server legitimately ends this one. */
        if (ln_sync_server_failure(z->server, NULL) != LINNET_SUPERSEDED) fail(z, "the server has failed");
        for (int i = 0; i < OPEN; i++) leave(z, &z->clients[i]);
        ln_sync_server_release(z->server);
        start(z);
    }
    if (z->server->used > MOST + 4 * z->manifest->push_bytes + 50000) fail(z, "more memory than max_bytes");
}

int main(int argc, char **argv) {
    static fuzz z;
    unsigned char payload[LN_NET_CONTROL_MAX];
    linnet_error error;
    long count;
    if (argc != 3 || (count = strtol(argv[1], NULL, 10)) < 1) {
        fprintf(stderr, "usage: fuzz_sync_server COUNT SEED\n");
        return 2;
    }
    z.f.state = strtoull(argv[2], NULL, 0);
    z.f.job = get64(job_digest);
    z.now = 1000000000;
    if (ln_sync_manifest_create(FRAMES_TENSORS, &z.manifest, &error) ||
        ln_sync_manifest_take(z.manifest, payload, frames_manifest(payload)))
        return 3;
    memcpy(z.manifest->job, job_digest, 16);
    z.manifest->shards = 1;
    for (uint32_t i = 0; i < FRAMES_TENSORS; i++) {
        z.value[i] = calloc(1, frames_tensor_bytes(i));
        z.gradient[i] = calloc(1, frames_tensor_bytes(i));
    }
    z.ids = calloc(frames_tensors[2].rows, 8);
    start(&z);
    for (long i = 0; i < count; i++) {
        hostile(&z);
        if (i % HONEST == 0) honest(&z);
        if (i % LIVES == LIVES - 1) {
            z.frames += (long)(z.server->applied + z.server->late + z.server->not_finite);
            for (int k = 0; k < OPEN; k++) leave(&z, &z.clients[k]);
            ln_sync_server_release(z.server);
            start(&z);
        }
    }
    for (int k = 0; k < OPEN; k++) z.messages += z.clients[k].data;
    printf("%ld inputs: %ld fine; %ld frames, %ld messages; refused", count, z.fine, z.updates, z.messages);
    for (int i = 1; i < 32; i++)
        if (z.refused[i]) printf(" %s %ld", ln_net_refusal_name((ln_net_refusal)i), z.refused[i]);
    printf("\n");
    for (int k = 0; k < OPEN; k++) leave(&z, &z.clients[k]), free(z.clients[k].peer);
    ln_sync_server_release(z.server);
    for (uint32_t i = 0; i < FRAMES_TENSORS; i++) free(z.value[i]), free(z.gradient[i]);
    ln_sync_manifest_free(z.manifest);
    free(z.ids);
    return 0;
}
