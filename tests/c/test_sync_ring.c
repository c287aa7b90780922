/* test_sync_ring.c - the ring's logic over streams in memory, whose bytes move in random portions and random order;
 * then rings of threads over sockets, where one rank leaves. */
#define _POSIX_C_SOURCE 200809L

#include "check.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "sync/codec/messages.h"
#include "sync/ring/ring_core.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST = 6 };
static uint64_t state = 77;

static uint64_t below(uint64_t n) { return check_random(&state) % n; }

/* A ring of `size` ranks in one thread. out[k] is rank k's stream to the right, in[k] the stream from its left. */
typedef struct bench {
    int size;
    ln_sync_ring ring[MOST];
    ln_net_stream *in[MOST], *out[MOST];
} bench;

static ln_net_stream *stream_of(ln_sync_ring *ring, int worker) {
    ln_net_handler handler = ln_sync_ring_handler(ring);
    ln_net_stream *stream = ln_net_stream_init(malloc(ln_net_stream_bytes(LN_SYNC_RING_QUEUE)), LN_SYNC_RING_QUEUE,
                                               &ln_sync_protocol, &handler);
    ln_net_stream_open(stream, 99, (uint32_t)worker, 0, LN_NET_CHUNK_MIN);
    ln_net_stream_expect(stream, LN_NET_BIT(LN_SYNC_SEGMENT) | LN_NET_BIT(LN_SYNC_HEARTBEAT) |
                                     LN_NET_BIT(LN_SYNC_REFUSE) | LN_NET_BIT(LN_SYNC_BYE));
    return stream;
}

static void make(bench *b, int size) {
    b->size = size;
    for (int k = 0; k < size; k++) {
        b->ring[k] = (ln_sync_ring){.rank = k, .size = size, .lost = -1, .piece = LN_NET_CHUNK_MIN};
        b->ring[k].scratch = malloc(b->ring[k].piece);
        b->ring[k].left = b->in[k] = stream_of(&b->ring[k], ln_sync_ring_left(&b->ring[k]));
        b->ring[k].right = b->out[k] = stream_of(&b->ring[k], k);
    }
}

static void unmake(bench *b) {
    for (int k = 0; k < b->size; k++) free(b->ring[k].scratch), free(b->in[k]), free(b->out[k]);
}

/* Moves some bytes from rank k to its right neighbour. */
static void carry(bench *b, int k) {
    ln_net_slice slices[16];
    ln_net_stream *to = b->in[(k + 1) % b->size];
    int count = ln_net_stream_pending(b->out[k], slices, 16);
    if (count == 0) return;
    size_t size = slices[0].size < 3000 ? slices[0].size : 1 + (size_t)below(slices[0].size), moved = 0;
    while (moved < size) { /* like a transport: into the space that the stream gives */
        void *space;
        size_t room;
        ln_net_stream_space(to, &space, &room);
        if (room == 0) break;
        if (room > size - moved) room = size - moved;
        memcpy(space, (const char *)slices[0].data + moved, room);
        moved += room;
        ln_net_stream_received(to, room);
    }
    if (moved) ln_net_stream_sent(b->out[k], moved);
}

static void test_random_orders(int rounds) {
    for (int round = 0; round < rounds * 20; round++) {
        bench b;
        const int size = 2 + (int)below(MOST - 1), reduces = 1 + (int)below(3);
        uint64_t counts[3];
        float *data[MOST][3];
        make(&b, size);
        for (int r = 0; r < reduces; r++) counts[r] = below(4) ? below(20000) : below(5);
        for (int k = 0; k < size; k++)
            for (int r = 0; r < reduces; r++) {
                data[k][r] = malloc(counts[r] * 4 + 4);
                for (uint64_t i = 0; i < counts[r]; i++) data[k][r][i] = (float)((k + 1) * (int)(i % 1000 + 1));
            }
        int at[MOST] = {0}, ended = 0;
        for (int k = 0; k < size; k++) ln_sync_ring_begin(&b.ring[k], data[k][0], counts[0], LINNET_F32, 0);
        long turns = 0;
        for (; ended < size && turns < 2000000; turns++) {
            const int k = (int)below((uint64_t)size);
            carry(&b, k);
            if (at[k] < reduces && ln_sync_ring_done(&b.ring[k])) { /* ranks continue at their own speed */
                at[k]++;
                if (at[k] < reduces)
                    ln_sync_ring_begin(&b.ring[k], data[k][at[k]], counts[at[k]], LINNET_F32, 0);
                else
                    ended++;
            }
        }
        CHECK_INT(ended, size);
        for (int k = 0; k < size; k++) {
            CHECK_INT(ln_net_stream_failure(b.in[k]), LN_NET_FINE);
            for (int r = 0; r < reduces; r++) {
                int wrong = 0;
                for (uint64_t i = 0; i < counts[r]; i++)
                    wrong += data[k][r][i] != (float)(size * (size + 1) / 2 * (int)(i % 1000 + 1));
                CHECK_INT(wrong, 0);
                free(data[k][r]);
            }
        }
        unmake(&b);
    }
}

/* Frames that a left neighbour must not send. */
static void test_refusals(void) {
    static const struct {
        ln_net_header header;
        size_t size;
        ln_net_refusal why;
    } cases[] = {
        {{.type = LN_SYNC_SEGMENT, .step = 1, .tensor = 1}, 40, LN_NET_UNEXPECTED}, /* the second piece first */
        {{.type = LN_SYNC_SEGMENT, .step = 2, .tensor = 0}, 40, LN_NET_UNEXPECTED}, /* a piece of a later all-reduce */
        {{.type = LN_SYNC_SEGMENT, .step = 1, .tensor = 0}, 36, LN_NET_WRONG_LENGTH},
        {{.type = LN_SYNC_SEGMENT, .step = 1, .tensor = 0}, 4000, LN_NET_WRONG_LENGTH},
        {{.type = LN_SYNC_SEGMENT, .step = 1, .tensor = 0, .encoding = 1}, 40, LN_NET_WRONG_ENCODING},
        {{.type = LN_SYNC_PUSH, .step = 1, .tensor = 0}, 40, LN_NET_UNEXPECTED},
    };
    static unsigned char bytes[4096];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench b;
        float data[20] = {0};
        make(&b, 2);
        ln_sync_ring_begin(&b.ring[1], data, 20, LINNET_F32, 0);
        CHECK(ln_net_stream_bulk(b.out[0], &cases[i].header, bytes, cases[i].size, 0));
        b.ring[0].released = 0;
        for (int turn = 0; turn < 20; turn++) carry(&b, 0);
        CHECK_INT(ln_net_stream_failure(b.in[1]), cases[i].why);
        unmake(&b);
    }
    bench b; /* a REFUSE names the lost rank; if it has no number, the lost rank is the sender */
    make(&b, 3);
    ln_sync_ring_tell(&b.ring[0], 2, LN_NET_TOO_SLOW, "it is asleep");
    carry(&b, 0);
    CHECK_INT(b.ring[1].lost, 2);
    CHECK_TEXT(b.ring[1].text, "it is asleep");
    ln_net_stream_refuse(b.out[1], LN_NET_MALFORMED, 0, NULL);
    carry(&b, 1);
    CHECK_INT(b.ring[2].lost, 1);
    unmake(&b);
}

typedef struct peer {
    const char *address;
    int rank, size, leaves;
    linnet_status status;
    linnet_error error;
    float sum;
} peer;

static void *run_peer(void *argument) {
    peer *p = argument;
    linnet_ring *ring = NULL;
    linnet_ring_config config;
    linnet_link_config link;
    linnet_ring_config_init(&config);
    linnet_link_config_init(&link);
    config.address = p->address;
    config.rank = p->rank;
    config.size = p->size;
    config.timeout_ms = 20000;
    link.chunk = 8192;
    config.link = &link;
    enum { N = 100000 };
    float *data = malloc(N * sizeof *data);
    p->status = linnet_ring_create(&config, &ring, &p->error);
    for (int step = 0; !p->status && step < 10 && (!p->leaves || step < 5); step++) {
        for (int i = 0; i < N; i++) data[i] = (float)(p->rank + step);
        p->status = linnet_ring_all_reduce(ring, data, N, LINNET_F32, LINNET_RING_MEAN, &p->error);
        if (!p->status) p->sum = data[N - 1];
    }
    linnet_ring_free(ring);
    free(data);
    return NULL;
}

static void test_threads(int leaves) {
    char address[100];
    peer peers[4];
    pthread_t threads[4];
    snprintf(address, sizeof address, "unix:/tmp/linnet-test-ring-%ld-%d", (long)getpid(), leaves);
    for (int k = 0; k < 4; k++) {
        peers[k] = (peer){.address = address, .rank = k, .size = 4, .leaves = k == leaves};
        pthread_create(&threads[k], NULL, run_peer, &peers[k]);
    }
    for (int k = 0; k < 4; k++) pthread_join(threads[k], NULL);
    for (int k = 0; k < 4; k++) {
        if (leaves < 0 || k == leaves) {
            CHECK_INT(peers[k].status, LINNET_OK);
            CHECK(peers[k].sum == (leaves < 0 ? 10.5f : 5.5f));
        } else {
            CHECK_INT(peers[k].status, LINNET_CONNECTION_LOST);
            CHECK_INT(peers[k].error.op_index, leaves);
        }
        if (peers[k].status && peers[k].status != LINNET_CONNECTION_LOST)
            printf("rank %d: %s\n", k, peers[k].error.what);
    }
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    test_random_orders(rounds);
    test_refusals();
    test_threads(-1);
    test_threads(2);
    return check_end("test_sync_ring");
}
