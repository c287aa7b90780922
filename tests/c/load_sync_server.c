/* load_sync_server.c - many workers in one thread, for tests of a server under load. In each step each worker pushes
 * its number plus one as the gradient of every element, and sometimes drops its connection after a push.
 * load_sync_server MODEL ADDRESS WORKERS STEPS LOST IDLE_MS. LOST: number of pushes out of 1000 after which the
 * connection is dropped; IDLE_MS: time for which all workers stay connected before they begin. Prints "idle", then
 * "done" and counts. */
#define _DEFAULT_SOURCE
#include "net/posix_poller.h"
#include "net/refusal.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "net/transport.h"
#include "net/transport_connect.h"
#include "net/transport_flow.h"
#include "sync/codec/manifest.h"
#include "sync/codec/manifest_model.h"
#include "sync/codec/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef struct worker {
    ln_net_transport *transport;
    ln_net_stream *stream;
    void *memory;
    float *gradient;
    uint32_t number, tensors;
    uint64_t step, applied, late, lost, retry_at;
    int mask;
    bool ready, pushing, drop;
} worker;

static struct load {
    const ln_sync_manifest *manifest;
    const char *address;
    ln_net_poller *poller;
    worker *workers;
    int count, done, idle;
    uint64_t steps, random, job;
    unsigned lost_of_1000;
    bool begun;
} load;

static void stop(const char *why) {
    fprintf(stderr, "load_sync_server: %s\n", why);
    exit(1);
}

static uint64_t now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

static uint64_t chance(void) {
    load.random ^= load.random >> 12;
    load.random ^= load.random << 25;
    load.random ^= load.random >> 27;
    return load.random * UINT64_C(0x2545f4914f6cdd1d) >> 32;
}

static void send_frame(worker *w, uint8_t type, uint64_t step, const void *payload, size_t size, bool behind) {
    ln_net_header h;
    memset(&h, 0, sizeof h);
    h.type = type;
    h.step = step;
    h.job = load.job;
    h.worker = w->number;
    h.shard = load.manifest->shard;
    if (!(behind ? ln_net_stream_behind(w->stream, &h, payload, size)
                 : ln_net_stream_control(w->stream, &h, payload, size)))
        stop("a frame found no room");
}

static void push(worker *w) {
    const ln_sync_commit commit = {load.manifest->count, 0, 1, 0, 1000000, 0, 1};
    unsigned char bytes[LN_SYNC_COMMIT_BYTES];
    for (uint32_t t = 0; t < load.manifest->count; t++) {
        ln_net_header h;
        memset(&h, 0, sizeof h);
        h.type = LN_SYNC_PUSH;
        h.tensor = t;
        h.step = w->step;
        if (!ln_net_stream_bulk(w->stream, &h, w->gradient, load.manifest->variables[t].bytes, 0))
            stop("a gradient found no place");
    }
    ln_sync_commit_write(&commit, bytes);
    send_frame(w, LN_SYNC_COMMIT, w->step, bytes, sizeof bytes, true);
    w->pushing = true;
    w->drop = chance() % 1000 < load.lost_of_1000;
}

static void go_on(worker *w) {
    if (w->step == load.steps)
        load.done++;
    else
        push(w);
}

static ln_net_refusal place(void *context, ln_net_stream *stream, const ln_net_header *h, void **to) {
    (void)context, (void)stream, (void)h, (void)to;
    return LN_NET_FINE;
}

static void take_welcome(worker *w, const ln_net_header *h, const void *payload) {
    ln_sync_welcome welcome;
    ln_sync_ready ready;
    unsigned char bytes[LN_SYNC_READY_BYTES];
    if (!ln_sync_welcome_read(&welcome, payload, h->length)) stop("WELCOME is wrong");
    if (welcome.applied != LN_SYNC_NONE && welcome.applied == w->step) w->step++, w->applied++; /* the ACK was lost */
    memcpy(ready.server_nonce, welcome.server_nonce, 16);
    for (int i = 0; i < 16; i++) ready.manifest[i] = (unsigned char)(load.manifest->digest[i / 8] >> 8 * (i % 8));
    ln_sync_ready_write(&ready, bytes);
    w->tensors = 0;
    send_frame(w, LN_SYNC_READY, 0, bytes, sizeof bytes, false);
    ln_net_stream_open(w->stream, load.job, w->number, load.manifest->shard, welcome.chunk);
    ln_net_stream_expect(w->stream, ln_sync_sent_by(LN_SYNC_SERVER) | LN_NET_BIT(LN_SYNC_TENSORS));
    w->ready = true;
    load.idle++;
    if (load.begun && w->step <= load.steps) go_on(w);
}

static ln_net_refusal frame(void *context, ln_net_stream *stream, const ln_net_header *h, const void *payload) {
    worker *w = ln_net_stream_user(stream);
    ln_sync_ack ack;
    (void)context;
    if (h->type == LN_SYNC_REFUSE) {
        ln_net_refuse refuse;
        if (ln_net_refuse_read(&refuse, payload, h->length) && refuse.why != LN_NET_IN_USE) stop(refuse.text);
    }
    if (h->type == LN_SYNC_WELCOME) take_welcome(w, h, payload);
    if (h->type != LN_SYNC_ACK || !w->pushing || h->step != w->step) return LN_NET_FINE;
    if (!ln_sync_ack_read(&ack, payload, h->length)) stop("ACK is wrong");
    if (ack.outcome == LN_SYNC_APPLIED)
        w->applied++;
    else
        w->late++;
    w->step = ack.next > w->step ? ack.next : w->step + 1;
    w->pushing = w->drop = false;
    go_on(w);
    return LN_NET_FINE;
}

static void released(void *context, ln_net_stream *stream, uint64_t tag) { (void)context, (void)stream, (void)tag; }

static void connect_one(worker *w) {
    linnet_error error;
    unsigned char bytes[LN_SYNC_HELLO_BYTES];
    ln_sync_hello hello;
    memset(&hello, 0, sizeof hello);
    hello.lowest = hello.highest = LN_NET_VERSION;
    hello.encodings = 1;
    memcpy(hello.job, load.manifest->job, 16);
    hello.incarnation = 1000 + w->number;
    hello.last_step = w->step ? w->step - 1 : LN_SYNC_NONE;
    hello.worker = w->number;
    hello.chunk = LN_NET_CHUNK_MIN;
    ln_sync_hello_write(&hello, bytes);
    ln_net_stream_reset(w->stream);
    w->ready = w->pushing = w->drop = false;
    if (ln_net_connect(load.address, NULL, true, &w->transport, &error)) stop(error.what);
    send_frame(w, LN_SYNC_HELLO, 0, bytes, sizeof bytes, false);
    w->mask = LN_NET_READ | LN_NET_WRITE;
    if (!ln_net_poller_add(load.poller, ln_net_transport_fd(w->transport), w->mask, w)) stop("no descriptor");
}

static void disconnect(worker *w) {
    ln_net_poller_remove(load.poller, ln_net_transport_fd(w->transport));
    ln_net_transport_free(w->transport);
    w->transport = NULL;
    w->lost++;
    w->retry_at = now_ms() + chance() % 20;
}

static void serve(worker *w) {
    linnet_error error;
    ln_net_flow in = ln_net_transport_receive(w->transport, w->stream, LN_NET_TURN, &error), out;
    out = ln_net_transport_send(w->transport, w->stream, LN_NET_TURN, &error);
    const bool gone = in == LN_NET_ENDED || in == LN_NET_BROKEN || out == LN_NET_ENDED || out == LN_NET_BROKEN;
    if (gone || (w->drop && ln_net_stream_idle(w->stream))) {
        disconnect(w);
        return;
    }
    const int mask = ln_net_transport_wants(w->transport, w->stream) & (LN_NET_READ | LN_NET_WRITE);
    if (mask != w->mask) ln_net_poller_change(load.poller, ln_net_transport_fd(w->transport), mask, w);
    w->mask = mask;
}

static void turn(void) {
    ln_net_event ready[64];
    const int n = ln_net_poller_wait(load.poller, ready, 64, 10);
    for (int i = 0; i < n; i++)
        if (((worker *)ready[i].user)->transport) serve(ready[i].user);
    for (int i = 0; load.begun && i < load.count; i++) {
        worker *w = &load.workers[i];
        if (!w->transport && now_ms() >= w->retry_at) connect_one(w);
    }
}

static void wait_for(int *count, int wanted) {
    const uint64_t began = now_ms();
    while (*count < wanted) {
        turn();
        if (now_ms() - began > 600000) stop("ten minutes, and not done");
    }
}

int main(int argc, char **argv) {
    const ln_net_handler handler = {NULL, place, frame, released};
    linnet_model *model = NULL;
    ln_sync_manifest *manifest = NULL;
    linnet_error error;
    uint64_t applied = 0, late = 0, lost = 0, until;
    struct rlimit limit;
    if (!getrlimit(RLIMIT_NOFILE, &limit)) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (argc != 7) stop("usage: load_sync_server MODEL ADDRESS WORKERS STEPS LOST_OF_1000 IDLE_MS");
    if (linnet_model_open(argv[1], NULL, &model, &error)) stop(error.what);
    if (ln_sync_manifest_from_model(model, &manifest, &error)) stop(error.what);
    load.manifest = manifest;
    load.address = argv[2];
    load.count = atoi(argv[3]);
    load.steps = (uint64_t)atoll(argv[4]);
    load.lost_of_1000 = (unsigned)atoi(argv[5]);
    load.random = 88172645463325252u;
    load.poller = ln_net_poller_new();
    for (int i = 7; i >= 0; i--) load.job = load.job << 8 | manifest->job[i];
    load.workers = calloc((size_t)load.count, sizeof *load.workers);
    if (!load.poller || !load.workers) stop("no memory");
    for (int i = 0; i < load.count; i++) {
        worker *w = &load.workers[i];
        w->number = (uint32_t)i;
        w->memory = malloc(ln_net_stream_bytes(8));
        w->stream = ln_net_stream_init(w->memory, 8, &ln_sync_protocol, &handler);
        ln_net_stream_set_user(w->stream, w);
        w->gradient = malloc((size_t)manifest->push_bytes);
        for (uint64_t k = 0; k < manifest->push_bytes / sizeof *w->gradient; k++) w->gradient[k] = (float)(i + 1);
        connect_one(w);
        if (i % 64 == 63) turn();
    }
    wait_for(&load.idle, load.count);
    printf("idle\n");
    fflush(stdout);
    for (until = now_ms() + (uint64_t)atoll(argv[6]); now_ms() < until;) turn();
    load.begun = true;
    for (int i = 0; i < load.count; i++) {
        push(&load.workers[i]);
        serve(&load.workers[i]);
    }
    wait_for(&load.done, load.count);
    for (int i = 0; i < load.count; i++) {
        worker *w = &load.workers[i];
        applied += w->applied, late += w->late, lost += w->lost;
        if (w->transport) ln_net_transport_free(w->transport);
        free(w->memory);
        free(w->gradient);
    }
    printf("done applied %llu late %llu lost %llu\n", (unsigned long long)applied, (unsigned long long)late,
           (unsigned long long)lost);
    ln_net_poller_free(load.poller);
    free(load.workers);
    ln_sync_manifest_free(manifest);
    linnet_model_free(model);
    return 0;
}
