/* fuzz_sync_worker.c - a lying server: sends changed answers to a worker that agrees, pulls, pushes and fetches rows.
 * Whatever arrives, the worker must stay within its memory and its variables, send valid frames, and then work with an
 * honest server. usage: fuzz_sync_worker COUNT SEED MODEL.lnt. Build it with sanitizers, which end it with a status if
 * they find anything. */
#include "net/refusal.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "sync/codec/compress.h"
#include "sync/codec/manifest.h"
#include "sync/codec/messages.h"
#include "sync/worker/worker_core.h"
#include "sync/worker/worker_pull.h"
#include "sync/worker/worker_push.h"
#include "sync/worker/worker_state.h"
#include "sync/worker/worker_work.h"
#include "sync_frames.h"

enum { LIVES = 100 };

typedef struct fuzz {
    frames f;
    linnet_model *model;
    linnet_plan *plan;
    linnet_store *store;
    linnet_session *session;
    ln_sync_worker *worker;
    ln_sync_manifest *manifest;
    ln_net_stream *peer; /* receives what the worker sends */
    ln_sync_hello hello;
    uint32_t granted; /* encodings in the last WELCOME */
    bool greeted, ready, committed;
    uint64_t now;
    float rows[4][16];
    long frames, messages, refused[32], fine;
} fuzz;

static void fail(const fuzz *z, const char *what) {
    printf("fuzz_sync_worker: %s; random state %llx\n", what, (unsigned long long)z->f.state);
    exit(4);
}

static uint64_t clock_of(void *context) { return ((fuzz *)context)->now; }

static void random_of(void *context, void *bytes, size_t size) { frames_fill(&((fuzz *)context)->f, bytes, size); }

/* ---- frames from the worker ------------------------------------------------------------------------------------- */

static ln_net_refusal peer_place(void *context, ln_net_stream *stream, const ln_net_header *header,
                                 void **destination) {
    (void)context, (void)stream, (void)header, (void)destination;
    return LN_NET_FINE;
}

static ln_net_refusal peer_frame(void *context, ln_net_stream *stream, const ln_net_header *header,
                                 const void *payload) {
    fuzz *z = context;
    if (header->type == LN_SYNC_HELLO) z->greeted = ln_sync_hello_read(&z->hello, payload, header->length);
    z->committed |= header->type == LN_SYNC_COMMIT;
    if (header->type == LN_SYNC_READY) {
        z->ready = true;
        ln_net_stream_open(stream, z->f.job, z->f.worker, 0, FRAMES_CHUNK);
        ln_net_stream_expect(stream, ln_sync_sent_by(LN_SYNC_WORKER));
    }
    return LN_NET_FINE;
}

static void peer_released(void *context, ln_net_stream *stream, uint64_t tag) {
    (void)context, (void)stream, (void)tag;
}

static void listen(fuzz *z) {
    ln_net_stream *stream = ln_sync_worker_stream(z->worker, 0);
    ln_net_slice slices[16];
    for (int turn = 0; turn < 200; turn++) {
        ln_sync_worker_advance(z->worker);
        const int count = ln_net_stream_pending(stream, slices, 16);
        size_t sent = 0;
        if (count == 0) return;
        for (int i = 0; i < count; i++) {
            if (ln_net_stream_feed(z->peer, slices[i].data, slices[i].size)) fail(z, "sent what a peer refuses");
            sent += slices[i].size;
        }
        ln_net_stream_sent(stream, sent);
    }
}

/* ---- frames from the server ------------------------------------------------------------------------------------- */

static void feed(fuzz *z) {
    frames *f = &z->f;
    ln_net_stream *stream = ln_sync_worker_stream(z->worker, 0);
    for (size_t at = 0; at < f->size && !ln_net_stream_failure(stream);) {
        void *space;
        size_t room, part = frames_below(f, 3) ? f->size - at : 1 + frames_below(f, 200);
        ln_net_stream_space(stream, &space, &room);
        if (room == 0) fail(z, "a worker does not read");
        if (part > room) part = room;
        if (part > f->size - at) part = f->size - at;
        memcpy(space, f->bytes + at, part);
        at += part;
        ln_net_stream_received(stream, part);
        if (frames_below(f, 3) == 0) listen(z);
    }
    f->count = 0;
    f->size = 0;
}

static void connect(fuzz *z) {
    if (ln_sync_worker_wish(z->worker, 0) == LN_SYNC_WISH_CLOSE) ln_sync_worker_lost(z->worker, 0, NULL);
    for (int i = 0; i < 100 && ln_sync_worker_wish(z->worker, 0) == LN_SYNC_WISH_NONE; i++) z->now += 1000000000;
    if (ln_sync_worker_wish(z->worker, 0) != LN_SYNC_WISH_CONNECT) return;
    ln_net_stream_reset(z->peer);
    z->greeted = z->ready = false;
    ln_sync_worker_connected(z->worker, 0);
    listen(z);
    if (!z->greeted) fail(z, "a worker does not greet");
}

static void add_welcome(fuzz *z, bool honest) {
    unsigned char payload[LN_NET_CONTROL_MAX];
    z->granted = z->hello.encodings & ~(frames_below(&z->f, 4) ? 0 : LN_SYNC_PULL_ENCODINGS);
    ln_sync_welcome welcome = {.version = 1,
                               .shards = 1,
                               .encodings = z->granted,
                               .worker = z->f.worker,
                               .epoch = 5,
                               .step = z->f.step,
                               .parameters = 1,
                               .applied = LN_SYNC_NONE,
                               .tensors = FRAMES_TENSORS,
                               .chunk = FRAMES_CHUNK,
                               .heartbeat = 1000,
                               .lease = 5000};
    memcpy(welcome.nonce, z->hello.nonce, 16);
    if (!honest && frames_below(&z->f, 10) == 0) welcome.step = frames_telling(&z->f);
    ln_sync_welcome_write(&welcome, payload);
    frames_add(&z->f, frames_of(LN_SYNC_WELCOME, 0, 0), payload, LN_SYNC_WELCOME_BYTES);
    frames_add(&z->f, frames_of(LN_SYNC_TENSORS, 0, 0), payload, frames_manifest(payload));
    if (!honest && frames_below(&z->f, 10) == 0) frames_change(&z->f);
}

/* Adds a DATA message in the encoding that was granted. A dishonest server sometimes takes another one. */
static void add_value(fuzz *z, ln_net_header header, uint64_t bytes, bool honest) {
    const bool large = header.tensor == 2 || header.tensor == 3;
    for (uint8_t i = LN_SYNC_F16; large && i <= LN_SYNC_BF16; i++)
        if (z->granted >> (LN_SYNC_PULL_AS + i) & 1) header.encoding = i;
    if (!honest && frames_below(&z->f, 20) == 0) header.encoding = (uint8_t)frames_below(&z->f, 6);
    frames_message(&z->f, header, NULL, header.encoding ? bytes / 2 : bytes);
}

/* Adds the values of all tensors, which answer a PULL. */
static void add_values(fuzz *z, bool honest) {
    for (uint32_t t = 0; t < FRAMES_TENSORS; t++)
        add_value(z, frames_of(LN_SYNC_DATA, 2, t), frames_tensor_bytes(t), honest);
}

static void add_rows(fuzz *z) {
    ln_net_header header = frames_of(LN_SYNC_DATA, 2, 2);
    header.flags = LN_SYNC_FLAG_ROWS;
    add_value(z, header, sizeof z->rows, false);
}

static void add_ack(fuzz *z) {
    const ln_sync_ack ack = {.version = 3, .next = z->f.step + 1, .workers = 1, .members = 1};
    unsigned char payload[LN_SYNC_ACK_BYTES];
    ln_sync_ack_write(&ack, payload);
    frames_add(&z->f, frames_of(LN_SYNC_ACK, z->f.step, 0), payload, sizeof payload);
}

/* ---- lives of a worker ------------------------------------------------------------------------------------------ */

static void start(fuzz *z) {
    static const char *const servers[] = {"fuzzed"};
    const ln_sync_host host = {z, clock_of, random_of};
    linnet_worker_config config;
    linnet_link_config link;
    linnet_error error;
    linnet_worker_config_init(&config);
    config.worker = 3;
    config.lost_ms = config.timeout_ms = INT32_MAX;
    linnet_link_config_init(&link);
    link.chunk = FRAMES_CHUNK;
    config.link = &link;
    config.keep_pulled = frames_below(&z->f, 2) != 0;
    config.pull_compression = (int32_t)frames_below(&z->f, 3);
    if (linnet_store_create(z->model, NULL, &z->store, &error) ||
        linnet_session_create(z->plan, z->store, NULL, &z->session, &error) || linnet_run(z->session, &error) ||
        ln_sync_worker_create(z->model, z->store, servers, 1, &config, &host, &z->worker, &error))
        fail(z, error.what);
    z->f.job = get64(z->worker->job), z->f.worker = 3, z->f.shard = 0, z->f.step = 7;
    ln_sync_worker_begin_agreement(z->worker);
}

static void stop(fuzz *z) {
    ln_sync_worker_free(z->worker);
    linnet_session_free(z->session);
    linnet_store_free(z->store);
}

/* Lets the worker do one thing, and sends changed answers to it. */
static void hostile(fuzz *z) {
    static const int64_t numbers[4] = {0, 3, 50, 99};
    const ln_sync_request request = {"c", numbers, 4, z->rows};
    frames *f = &z->f;
    linnet_status status = LINNET_OK;
    linnet_error error;
    connect(z);
    add_welcome(z, false);
    if (frames_below(f, 30) == 0) frames_fill(f, f->bytes, f->size = frames_below(f, 300));
    feed(z);
    listen(z);
    if (z->ready) {
        const uint64_t what = frames_below(f, 3);
        ln_sync_worker_finished(z->worker, &status, &error);
        if (z->worker->work == WORKER_IDLE && what == 0) ln_sync_worker_begin_pull(z->worker);
        if (z->worker->work == WORKER_IDLE && what == 1)
            status = ln_sync_worker_begin_push(z->worker, z->session, 1, frames_below(f, 2), &error);
        if (z->worker->work == WORKER_IDLE && what == 2)
            status = ln_sync_worker_begin_rows(z->worker, &request, 1, &error);
        listen(z);
        if (z->worker->work == WORKER_PUSH) f->step = z->worker->links[0].step;
        /* Mostly the right kind of answer. */
        const worker_work work = frames_below(f, 8) ? z->worker->work : (worker_work)frames_below(f, WORKER_LEAVE);
        if (work == WORKER_PUSH) add_ack(z);
        if (work == WORKER_ROWS) add_rows(z);
        if (work == WORKER_PULL || (work == WORKER_PUSH && frames_below(f, 2))) add_values(z, false);
        if (frames_below(f, 4) == 0) frames_from_server(f);
        frames_change(f);
        feed(z);
        listen(z);
    }
    const ln_net_refusal why = ln_net_stream_failure(ln_sync_worker_stream(z->worker, 0));
    z->refused[why < 32 ? why : 31]++;
    z->fine += why == LN_NET_FINE;
    z->frames += z->ready;
    z->now += frames_below(f, 3000) * 1000000;
    ln_sync_worker_advance(z->worker);
    if (ln_sync_worker_finished(z->worker, &status, &error)) z->messages += status == LINNET_OK;
    /* Ends this connection. A server that lies once too often legitimately ends the worker. */
    if (ln_sync_worker_wish(z->worker, 0) != LN_SYNC_WISH_CONNECT) ln_sync_worker_lost(z->worker, 0, NULL);
    if (z->worker->failure.code) {
        stop(z);
        start(z);
    }
    if (z->worker->bytes > 400000) fail(z, "a worker takes too much memory");
}

/* After all that, the worker agrees, pulls and pushes with a server that tells the truth. */
static void honest(fuzz *z) {
    linnet_status status = LINNET_OK;
    linnet_error error = {0};
    stop(z);
    start(z);
    connect(z);
    add_welcome(z, true);
    feed(z);
    listen(z);
    if (!ln_sync_worker_finished(z->worker, &status, &error) || status) fail(z, "no agreement with an honest server");
    ln_sync_worker_begin_pull(z->worker);
    listen(z);
    add_values(z, true);
    feed(z);
    listen(z);
    if (!ln_sync_worker_finished(z->worker, &status, &error) || status) fail(z, "no values from an honest server");
    z->committed = false;
    if (ln_sync_worker_begin_push(z->worker, z->session, 1, false, &error)) fail(z, error.what);
    listen(z);
    if (!z->committed) fail(z, "no push to an honest server");
    add_ack(z);
    feed(z);
    listen(z);
    if (!ln_sync_worker_finished(z->worker, &status, &error) || status) fail(z, "no answer from an honest server");
}

int main(int argc, char **argv) {
    static fuzz z;
    const ln_net_handler handler = {&z, peer_place, peer_frame, peer_released};
    linnet_plan_config config;
    linnet_error error;
    long count;
    if (argc != 4 || (count = strtol(argv[1], NULL, 10)) < 1) {
        fprintf(stderr, "usage: fuzz_sync_worker COUNT SEED MODEL.lnt\n");
        return 2;
    }
    z.f.state = strtoull(argv[2], NULL, 0);
    z.now = 1000000000;
    z.peer = ln_net_stream_init(malloc(ln_net_stream_bytes(1)), 1, &ln_sync_protocol, &handler);
    linnet_plan_config_init(&config);
    config.signature = "grad";
    config.threads = 1;
    if (linnet_model_open(argv[3], NULL, &z.model, &error) || linnet_plan_create(z.model, &config, &z.plan, &error)) {
        printf("fuzz_sync_worker: %s: %s\n", argv[3], error.what);
        return 2;
    }
    start(&z);
    for (long i = 0; i < count; i++) {
        hostile(&z);
        if (i % LIVES == LIVES - 1) honest(&z);
    }
    printf("%ld inputs: %ld fine; %ld frames, %ld messages; refused", count, z.fine, z.frames, z.messages);
    for (int i = 1; i < 32; i++)
        if (z.refused[i]) printf(" %s %ld", ln_net_refusal_name((ln_net_refusal)i), z.refused[i]);
    printf("\n");
    stop(&z);
    linnet_plan_free(z.plan);
    linnet_model_free(z.model);
    free(z.peer);
    return 0;
}
