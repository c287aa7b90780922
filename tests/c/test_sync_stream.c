/* test_sync_stream.c - the stream: any split of the bytes, every flipped bit, chunks that alternate, control frames
 * that overtake, pausing, moving, cancelling, refusing, resetting. */
#include "net/frame.h"
#include "net/refusal.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "sync/codec/messages.h"
#include "sync/codec/payload.h"
#include "check.h"

#include <stdlib.h>

enum { PLACES = 8, TENSORS = 8, TENSOR_BYTES = 300000, MOST_EVENTS = 4096, CHUNK = 4096, BYTES = 4 << 20 };
static const uint64_t job = 0x1122334455667788u;

typedef struct event {
    uint8_t type;
    uint64_t step, offset, total;
    uint32_t tensor, length, payload; /* payload: CRC of the payload */
} event;

/* One end: a stream, what it received, and where it was written. */
typedef struct side {
    ln_net_stream *stream;
    unsigned char *tensor[TENSORS];
    event events[MOST_EVENTS];
    int count, placed, released;
    uint64_t released_tags;
    uint32_t pause_at, pause_place_at, drop; /* frame types: pause when complete, pause when placed, drop */
    ln_net_refusal answer;                   /* result of frame() */
    bool open_at_ready;
} side;

static ln_net_refusal on_place(void *context, ln_net_stream *stream, const ln_net_header *header, void **destination) {
    side *s = context;
    s->placed++;
    if (header->type == s->pause_place_at) {
        s->pause_place_at = 0;
        ln_net_stream_pause(stream, true);
        *destination = (void *)1; /* must not be used */
        return LN_NET_FINE;
    }
    if (header->tensor >= TENSORS) return LN_NET_UNKNOWN_TENSOR;
    if (header->total > TENSOR_BYTES) return LN_NET_WRONG_LENGTH;
    if (header->type == s->drop) return LN_NET_FINE;
    *destination = s->tensor[header->tensor] + header->offset;
    return LN_NET_FINE;
}

static ln_net_refusal on_frame(void *context, ln_net_stream *stream, const ln_net_header *header, const void *payload) {
    side *s = context;
    event *e = &s->events[s->count++ % MOST_EVENTS];
    CHECK(payload || header->type == s->drop);
    *e = (event){header->type,
                 header->step,
                 header->offset,
                 header->total,
                 header->tensor,
                 header->length,
                 payload ? ln_net_crc32c(0, payload, header->length) : header->payload_crc};
    CHECK_INT(e->payload, header->payload_crc);
    if (header->type == LN_SYNC_READY && s->open_at_ready) ln_net_stream_open(stream, job, 3, 1, CHUNK);
    if (header->type == s->pause_at) ln_net_stream_pause(stream, true);
    return s->answer;
}

static void on_released(void *context, ln_net_stream *stream, uint64_t tag) {
    side *s = context;
    (void)stream;
    s->released++;
    s->released_tags |= UINT64_C(1) << tag;
}

static side *new_side(void) {
    side *s = calloc(1, sizeof *s);
    const ln_net_handler handler = {s, on_place, on_frame, on_released};
    s->stream = ln_net_stream_init(malloc(ln_net_stream_bytes(PLACES)), PLACES, &ln_sync_protocol, &handler);
    for (int i = 0; i < TENSORS; i++) s->tensor[i] = calloc(1, TENSOR_BYTES);
    return s;
}

static side *open_side(void) {
    side *s = new_side();
    ln_net_stream_open(s->stream, job, 3, 1, CHUNK);
    return s;
}

static void free_side(side *s) {
    for (int i = 0; i < TENSORS; i++) free(s->tensor[i]);
    free(s->stream);
    free(s);
}

/* Sends everything that a stream has, at most `part` bytes at a time. */
static size_t drain(side *s, unsigned char *out, size_t part) {
    ln_net_slice slices[16];
    size_t size = 0;
    while (ln_net_stream_pending(s->stream, slices, 16) > 0) {
        const size_t now = slices[0].size < part ? slices[0].size : part;
        memcpy(out + size, slices[0].data, now);
        size += now;
        ln_net_stream_sent(s->stream, now);
    }
    CHECK(ln_net_stream_idle(s->stream));
    return size;
}

static ln_net_header of(uint8_t type, uint32_t tensor, uint64_t step) {
    return (ln_net_header){.type = type, .tensor = tensor, .step = step, .job = job, .worker = 3, .shard = 1};
}

static void control(side *s, uint8_t type, uint64_t step, size_t size) {
    static unsigned char payload[LN_NET_CONTROL_MAX];
    const ln_net_header header = of(type, 0, step);
    for (size_t i = 0; i < size; i++) payload[i] = (unsigned char)(step + i * 7);
    CHECK(ln_net_stream_control(s->stream, &header, payload, size));
}

static void bulk(side *s, uint8_t type, uint32_t tensor, uint64_t size) {
    const ln_net_header header = of(type, tensor, 9);
    for (uint64_t i = 0; i < size; i++) s->tensor[tensor][i] = (unsigned char)(i * 131 + i / 253 + tensor);
    CHECK(ln_net_stream_bulk(s->stream, &header, s->tensor[tensor], size, tensor));
}

static bool same_tensor(const side *a, const side *b, uint32_t tensor, size_t size) {
    return memcmp(a->tensor[tensor], b->tensor[tensor], size) == 0;
}

/* A session: the handshake, a push of three tensors (one empty), control frames of all sizes. */
static size_t session(unsigned char *out) {
    side *s = new_side();
    size_t size;
    control(s, LN_SYNC_HELLO, 1, 96);
    control(s, LN_SYNC_READY, 2, 32);
    size = drain(s, out, SIZE_MAX);
    ln_net_stream_open(s->stream, job, 3, 1, CHUNK);
    bulk(s, LN_SYNC_PUSH, 0, 3 * CHUNK + 17);
    bulk(s, LN_SYNC_PUSH, 1, 0);
    bulk(s, LN_SYNC_PUSH, 2, CHUNK);
    control(s, LN_SYNC_HEARTBEAT, 3, 32);
    control(s, LN_SYNC_BYE, 4, 0);
    size += drain(s, out + size, 1000);
    control(s, LN_SYNC_PULL, 5, LN_NET_CONTROL_MAX);
    control(s, LN_SYNC_PULL, 6, 32);
    size += drain(s, out + size, 77);
    free_side(s);
    return size;
}

/* Returns a digest of the events. */
static uint32_t digest(const side *s) {
    uint32_t crc = 0;
    for (int i = 0; i < s->count; i++) {
        const event *e = &s->events[i];
        const uint64_t all[] = {e->type, e->step, e->offset, e->total, e->tensor, e->length, e->payload};
        crc = ln_net_crc32c(crc, all, sizeof all);
    }
    return crc;
}

/* Receives bytes through the interface that transports use. */
static void receive(side *s, const unsigned char *bytes, size_t size) {
    while (size > 0) {
        void *space;
        size_t room;
        ln_net_stream_space(s->stream, &space, &room);
        if (room == 0) return;
        if (room > size) room = size;
        memcpy(space, bytes, room);
        bytes += room, size -= room;
        ln_net_stream_received(s->stream, room);
    }
}

static void test_splits(unsigned char *bytes) {
    const size_t size = session(bytes);
    uint32_t expected = 0;
    side *s = new_side();
    s->open_at_ready = true;
    for (size_t at = 0; at <= size; at++) { /* at 0: one byte at a time */
        ln_net_stream_reset(s->stream);
        s->count = 0;
        if (at == 0)
            for (size_t i = 0; i < size; i++) receive(s, bytes + i, 1);
        else
            receive(s, bytes, at), receive(s, bytes + at, size - at);
        CHECK_INT(ln_net_stream_failure(s->stream), LN_NET_FINE);
        if (at == 0) {
            expected = digest(s);
            CHECK_INT(s->count, 2 + 4 + 1 + 1 + 4);
            side *t = new_side();
            ln_net_stream_open(t->stream, job, 3, 1, CHUNK);
            bulk(t, LN_SYNC_PUSH, 0, 3 * CHUNK + 17);
            CHECK(same_tensor(s, t, 0, 3 * CHUNK + 17));
            free_side(t);
        }
        if (digest(s) != expected) CHECK_INT(at, -1);
    }
    free_side(s);
    CHECK(expected != 0);
}

/* Flips every bit of every header, and bits of payloads: the frame never arrives, and no place is requested for a wrong
 * header. */
static void test_flips(unsigned char *bytes) {
    static const size_t payloads[] = {0, 32, 4096};
    for (int kind = 0; kind < 4; kind++) { /* control frames of these sizes, and a bulk frame */
        side *from = open_side();
        if (kind < 3)
            control(from, LN_SYNC_PULL, 7, payloads[kind]);
        else
            bulk(from, LN_SYNC_PUSH, 1, 1000);
        const size_t size = drain(from, bytes, SIZE_MAX);
        side *to = open_side();
        for (size_t bit = 0; bit < 8 * size; bit += bit < 8 * LN_NET_HEADER ? 1 : 61) {
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
            to->count = to->placed = 0;
            const ln_net_refusal why = ln_net_stream_feed(to->stream, bytes, size);
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
            CHECK(bit >= 32 ? why == LN_NET_BAD_CHECKSUM : why == LN_NET_MALFORMED);
            CHECK_INT(to->count, 0);
            if (bit < 8 * LN_NET_HEADER) CHECK_INT(to->placed, 0);
            ln_net_stream_reset(to->stream);
            ln_net_stream_open(to->stream, job, 3, 1, CHUNK);
        }
        CHECK_INT(ln_net_stream_feed(to->stream, bytes, size), LN_NET_FINE);
        CHECK_INT(to->count, 1);
        free_side(from), free_side(to);
    }
}

static void test_turns(unsigned char *bytes) {
    side *from = open_side(), *to = open_side();
    ln_net_slice slices[16];
    bulk(from, LN_SYNC_PUSH, 0, 4 * CHUNK);
    bulk(from, LN_SYNC_IDS, 1, 100);
    bulk(from, LN_SYNC_PUSH, 2, 2 * CHUNK);
    const ln_net_header commit = of(LN_SYNC_COMMIT, 0, 9);
    CHECK(ln_net_stream_behind(from->stream, &commit, "behind", 6));
    CHECK(!ln_net_stream_behind(from->stream, &commit, "behind", 6));
    control(from, LN_SYNC_HEARTBEAT, 1, 32);
    size_t size = drain(from, bytes, SIZE_MAX);
    ln_net_stream_feed(to->stream, bytes, size);
    static const uint32_t order[] = {0, 0, 1, 2, 0, 2, 0, 0};
    CHECK_INT(to->count, 9);
    CHECK_INT(to->events[0].type, LN_SYNC_HEARTBEAT);
    for (int i = 1; i < 8; i++) CHECK_INT(to->events[i].tensor, order[i]);
    CHECK_INT(to->events[8].type, LN_SYNC_COMMIT);
    CHECK(same_tensor(from, to, 0, 4 * CHUNK) && same_tensor(from, to, 2, 2 * CHUNK));
    CHECK_INT(from->released, 3);

    /* A control frame waits only for chunks that were begun, not for the rest of a large message. */
    bulk(from, LN_SYNC_PUSH, 3, 290000);
    size = 0;
    CHECK(ln_net_stream_pending(from->stream, slices, 16) > 1);
    memcpy(bytes, slices[0].data, 10);
    ln_net_stream_sent(from->stream, 10);
    control(from, LN_SYNC_HEARTBEAT, 2, 32);
    to->count = 0;
    size = 10 + drain(from, bytes + 10, SIZE_MAX);
    ln_net_stream_feed(to->stream, bytes, size);
    int before = 0;
    while (to->events[before].type != LN_SYNC_HEARTBEAT) before++;
    CHECK(before * CHUNK <= (64 << 10) + CHUNK && before > 0);
    CHECK_INT(to->count, 1 + (290000 + CHUNK - 1) / CHUNK);
    CHECK(same_tensor(from, to, 3, 290000));
    free_side(from), free_side(to);
}

static void test_full(unsigned char *bytes) {
    side *s = open_side();
    ln_net_header header = of(LN_SYNC_PUSH, 0, 0);
    for (int i = 0; i < PLACES; i++) CHECK(ln_net_stream_bulk(s->stream, &header, s->tensor[0], 10, (uint64_t)i));
    CHECK(!ln_net_stream_bulk(s->stream, &header, s->tensor[0], 10, 60));
    header.type = LN_SYNC_ACK;
    int frames = 0;
    while (ln_net_stream_control(s->stream, &header, s->tensor[0], LN_SYNC_ACK_BYTES)) frames++;
    CHECK(frames >= 64 && frames < 200);
    drain(s, bytes, SIZE_MAX);
    CHECK_INT(s->released, PLACES);
    CHECK(ln_net_stream_control(s->stream, &header, s->tensor[0], LN_SYNC_ACK_BYTES));
    CHECK(!ln_net_stream_control(s->stream, &header, s->tensor[0], LN_NET_CONTROL_MAX + 1));
    ln_net_stream_reset(s->stream);
    CHECK(ln_net_stream_idle(s->stream));
    CHECK(!ln_net_stream_bulk(s->stream, &header, s->tensor[0], 10, 1)); /* before the stream is open */
    CHECK(ln_net_stream_bytes(64) < 40 << 10);
    free_side(s);
}

static void test_pause(unsigned char *bytes) {
    side *from = open_side(), *to = open_side();
    void *space;
    size_t room;
    control(from, LN_SYNC_HEARTBEAT, 1, 32);
    control(from, LN_SYNC_PULL, 2, 64);
    bulk(from, LN_SYNC_PUSH, 0, 3000);
    bulk(from, LN_SYNC_IDS, 1, 800);
    const size_t size = drain(from, bytes, SIZE_MAX);
    to->pause_at = LN_SYNC_HEARTBEAT;
    to->pause_place_at = LN_SYNC_PUSH;
    receive(to, bytes, size);
    CHECK_INT(to->count, 1);
    ln_net_stream_space(to->stream, &space, &room);
    CHECK_INT(room, 0);
    ln_net_stream_pause(to->stream, false);
    CHECK_INT(ln_net_stream_received(to->stream, 0), LN_NET_FINE); /* everything has already arrived */
    CHECK_INT(to->count, 2);                                       /* stops where a frame asks for a place */
    CHECK_INT(to->placed, 1);
    ln_net_stream_pause(to->stream, false);
    ln_net_stream_received(to->stream, 0);
    CHECK_INT(to->count, 4);
    CHECK_INT(to->placed, 3);
    CHECK(same_tensor(from, to, 0, 3000) && same_tensor(from, to, 1, 800));
    free_side(from), free_side(to);
}

static void test_move_and_cancel(unsigned char *bytes) {
    side *from = open_side(), *to = open_side();
    ln_net_slice slices[16];
    unsigned char *moved = malloc(TENSOR_BYTES), *value = malloc(TENSOR_BYTES);
    bulk(from, LN_SYNC_DATA, 0, 40000);
    bulk(from, LN_SYNC_DATA, 1, 100);
    memcpy(value, from->tensor[0], 40000);
    ln_net_stream_pending(from->stream, slices, 16);
    size_t size = 64 + 500; /* in the middle of the first chunk */
    memcpy(bytes, slices[0].data, 64), memcpy(bytes + 64, slices[1].data, 500);
    ln_net_stream_sent(from->stream, size);
    CHECK_INT(ln_net_stream_move(from->stream, from->tensor[0], 40000, NULL), 1);
    CHECK_INT(ln_net_stream_move(from->stream, from->tensor[0] + 1, 39999, NULL), 0);
    CHECK_INT(ln_net_stream_move(from->stream, from->tensor[0], 39999, NULL), 0);
    memcpy(moved, from->tensor[0], 40000);
    CHECK_INT(ln_net_stream_move(from->stream, from->tensor[0], TENSOR_BYTES, moved), 1);
    memset(from->tensor[0], 0xee, 40000);
    size += drain(from, bytes + size, 333);
    CHECK_INT(ln_net_stream_feed(to->stream, bytes, size), LN_NET_FINE);
    CHECK(memcmp(to->tensor[0], value, 40000) == 0 && same_tensor(from, to, 1, 100));
    CHECK_INT(from->released, 2);

    /* Shared bytes: the first sender computes the checksums and the other senders use them, but not after the bytes
     * have moved. */
    {
        uint32_t sums[4] = {0};
        const ln_net_header header = of(LN_SYNC_DATA, 0, 9);
        const uint64_t length = 3 * CHUNK + 10;
        for (int round = 0; round < 3; round++) {
            to->count = from->released = 0;
            if (round == 2) sums[1] ^= 1; /* the peer notices, because the given checksums are sent */
            CHECK(ln_net_stream_shared(from->stream, &header, from->tensor[0], length, 0, sums, CHUNK));
            size = drain(from, bytes, 999);
            CHECK_INT(ln_net_stream_feed(to->stream, bytes, size), round == 2 ? LN_NET_BAD_CHECKSUM : LN_NET_FINE);
            CHECK(sums[3] == ln_net_crc32c(0, from->tensor[0] + 3 * CHUNK, 10));
        }
        free_side(to), to = open_side();
        sums[1] = 7;
        CHECK(ln_net_stream_shared(from->stream, &header, from->tensor[0], length, 0, sums, CHUNK));
        memcpy(moved, from->tensor[0], length);
        CHECK_INT(ln_net_stream_move(from->stream, from->tensor[0], TENSOR_BYTES, moved), 1);
        CHECK_INT(ln_net_stream_feed(to->stream, bytes, drain(from, bytes, 999)), LN_NET_FINE);
        CHECK(ln_net_stream_shared(from->stream, &header, from->tensor[0], length, 0, sums, CHUNK / 2));
        CHECK_INT(ln_net_stream_feed(to->stream, bytes, drain(from, bytes, 999)), LN_NET_FINE);
    }

    /* Cancels a message before it begins, while a chunk is being sent, and when all its chunks are begun. */
    to->count = from->released = 0;
    bulk(from, LN_SYNC_DATA, 2, 50 * CHUNK);
    ln_net_stream_pending(from->stream, slices, 16);
    memcpy(bytes, slices[0].data, 30);
    ln_net_stream_sent(from->stream, 30);
    bulk(from, LN_SYNC_DATA, 3, 100);
    CHECK(ln_net_stream_cancel(from->stream, 3));
    CHECK_INT(from->released, 1);
    CHECK(ln_net_stream_cancel(from->stream, 2));
    CHECK_INT(from->released, 1); /* its bytes are still being sent */
    CHECK(!ln_net_stream_cancel(from->stream, 4));
    control(from, LN_SYNC_COMMIT, 1, 64);
    size = 30 + drain(from, bytes + 30, SIZE_MAX);
    CHECK_INT(from->released, 2);
    CHECK_INT(ln_net_stream_feed(to->stream, bytes, size), LN_NET_FINE);
    CHECK(to->count > 1 && to->count < 20);
    CHECK_INT(to->events[to->count - 1].type, LN_SYNC_COMMIT);
    free(moved), free(value);
    free_side(from), free_side(to);
}

static void test_refuse(unsigned char *bytes) {
    side *from = open_side(), *to = open_side();
    ln_net_slice slices[16];
    ln_net_refuse refuse;
    bulk(from, LN_SYNC_DATA, 0, 200000);
    ln_net_stream_pending(from->stream, slices, 16);
    control(from, LN_SYNC_ACK, 3, 112);
    char text[400];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    ln_net_stream_refuse(from->stream, LN_NET_TOO_SLOW, 77, text);
    ln_net_stream_refuse(from->stream, LN_NET_FULL, 1, "not this one");
    CHECK_INT(ln_net_stream_failure(from->stream), LN_NET_TOO_SLOW);
    const ln_net_header header = of(LN_SYNC_ACK, 0, 0);
    CHECK(!ln_net_stream_control(from->stream, &header, text, 112));
    CHECK(!ln_net_stream_bulk(from->stream, &header, text, 112, 0));
    const size_t size = drain(from, bytes, SIZE_MAX);
    CHECK(size < 100000); /* chunks that were not begun are not sent */
    CHECK_INT(from->released, 1);
    CHECK_INT(ln_net_stream_feed(to->stream, bytes, size), LN_NET_FINE);
    CHECK_INT(to->events[to->count - 1].type, LN_SYNC_REFUSE);
    CHECK_INT(to->events[to->count - 2].type, LN_SYNC_ACK);
    CHECK(ln_net_refuse_read(&refuse, bytes + size - 248, 248));
    CHECK(refuse.why == LN_NET_TOO_SLOW && refuse.detail == 77 && strlen(refuse.text) == LN_NET_REFUSE_TEXT);
    /* A REFUSE is accepted even before the handshake; nothing else is. */
    side *early = new_side();
    ln_net_stream_refuse(early->stream, LN_NET_REPLAY, 0, NULL);
    const size_t short_size = drain(early, bytes, SIZE_MAX);
    CHECK_INT(ln_net_stream_feed(to->stream, bytes, short_size), LN_NET_FINE);
    free_side(from);
    from = open_side();
    control(from, LN_SYNC_PULL, 1, 32);
    ln_net_stream_reset(early->stream);
    CHECK_INT(ln_net_stream_feed(early->stream, bytes, drain(from, bytes, SIZE_MAX)), LN_NET_UNEXPECTED);
    /* A refusal by the handler is sent to the peer. */
    to->answer = LN_NET_REPLAY;
    control(from, LN_SYNC_PULL, 1, 32);
    CHECK_INT(ln_net_stream_feed(to->stream, bytes, drain(from, bytes, SIZE_MAX)), LN_NET_REPLAY);
    CHECK_INT(drain(to, bytes, SIZE_MAX), LN_NET_HEADER + LN_NET_REFUSE_BYTES);
    CHECK(ln_net_refuse_read(&refuse, bytes + LN_NET_HEADER, LN_NET_REFUSE_BYTES) && refuse.why == LN_NET_REPLAY);
    free_side(from), free_side(to), free_side(early);
}

/* Headers with a right checksum but wrong contents. */
static void test_wrong_headers(void) {
    const ln_net_header good = {
        .version = 1, .type = LN_SYNC_PUSH, .job = job, .worker = 3, .shard = 1, .length = 100, .total = 100};
    struct {
        ln_net_header header;
        ln_net_refusal why;
    } wrong[32];
    int n = 0;
#define WRONG(reason, ...)                                                                                             \
    do {                                                                                                               \
        ln_net_header h = good;                                                                                        \
        __VA_ARGS__;                                                                                                   \
        wrong[n].header = h;                                                                                           \
        wrong[n++].why = reason;                                                                                       \
    } while (0)
    WRONG(LN_NET_BAD_VERSION, h.version = 2);
    WRONG(LN_NET_BAD_VERSION, h.version = 0);
    WRONG(LN_NET_UNEXPECTED, h.type = 0);
    WRONG(LN_NET_UNEXPECTED, h.type = LN_SYNC_TYPES);
    WRONG(LN_NET_UNEXPECTED, h.type = 255);
    WRONG(LN_NET_UNEXPECTED, h.type = LN_SYNC_HELLO);
    WRONG(LN_NET_MALFORMED, h.flags = 2);
    WRONG(LN_NET_UNKNOWN_JOB, h.job++);
    WRONG(LN_NET_MALFORMED, h.worker++);
    WRONG(LN_NET_MALFORMED, h.shard++);
    WRONG(LN_NET_MALFORMED, h.total = 99);
    WRONG(LN_NET_MALFORMED, h.offset = 1);
    WRONG(LN_NET_MALFORMED, h.offset = UINT64_MAX);
    WRONG(LN_NET_MALFORMED, h.offset = UINT64_MAX - 99, h.total = UINT64_MAX);
    WRONG(LN_NET_MALFORMED, h.length = 0);
    WRONG(LN_NET_MALFORMED, h.length = 0, h.total = 0, h.payload_crc = 1);
    WRONG(LN_NET_OVER_LIMIT, h.length = CHUNK + 1, h.total = CHUNK + 1);
    WRONG(LN_NET_OVER_LIMIT, h.length = UINT32_MAX, h.total = UINT64_MAX);
    WRONG(LN_NET_WRONG_ENCODING, h.encoding = 6);
    WRONG(LN_NET_WRONG_ENCODING, h.encoding = 255);
    WRONG(LN_NET_MALFORMED, h.type = LN_SYNC_IDS, h.encoding = 1);
    WRONG(LN_NET_UNKNOWN_TENSOR, h.tensor = TENSORS);
    WRONG(LN_NET_WRONG_LENGTH, h.total = TENSOR_BYTES + 1);
    WRONG(LN_NET_OVER_LIMIT, h.type = LN_SYNC_PULL, h.length = 4097, h.total = 4097);
    WRONG(LN_NET_MALFORMED, h.type = LN_SYNC_PULL, h.total = 101);
    WRONG(LN_NET_MALFORMED, h.type = LN_SYNC_PULL, h.offset = 1, h.total = 101);
    WRONG(LN_NET_MALFORMED, h.type = LN_SYNC_PULL, h.encoding = 1);
    WRONG(LN_NET_MALFORMED, h.type = LN_SYNC_PULL, h.flags = 1);
    side *s = open_side();
    for (int i = 0; i < n; i++) {
        unsigned char bytes[LN_NET_HEADER];
        ln_net_header_write(&wrong[i].header, bytes);
        if (ln_net_stream_feed(s->stream, bytes, sizeof bytes) != wrong[i].why) CHECK_INT(i, -1);
        CHECK_INT(s->count, 0);
        ln_net_stream_reset(s->stream);
        ln_net_stream_open(s->stream, job, 3, 1, CHUNK);
    }
    unsigned char bytes[LN_NET_HEADER];
    ln_net_header_write(&good, bytes);
    ln_net_stream_expect(s->stream, ln_sync_sent_by(LN_SYNC_SERVER));
    CHECK_INT(ln_net_stream_feed(s->stream, bytes, sizeof bytes), LN_NET_UNEXPECTED);
    ln_net_stream_reset(s->stream);
    ln_net_stream_open(s->stream, job, 3, 1, CHUNK);
    ln_net_stream_expect(s->stream, ln_sync_sent_by(LN_SYNC_WORKER));
    CHECK_INT(ln_net_stream_feed(s->stream, bytes, sizeof bytes), LN_NET_FINE);
    free_side(s);
}

/* Unwanted messages are checked and dropped, however their bytes are split. A reset releases all memory. */
static void test_drop_and_reset(unsigned char *bytes) {
    side *from = open_side(), *to = open_side();
    to->drop = LN_SYNC_PUSH;
    bulk(from, LN_SYNC_PUSH, 0, 5 * CHUNK + 5);
    control(from, LN_SYNC_HEARTBEAT, 1, 32);
    const size_t size = drain(from, bytes, SIZE_MAX);
    for (size_t at = 0, part = 1; at < size; at += part, part = part % 5000 + 777)
        receive(to, bytes + at, size - at < part ? size - at : part);
    CHECK_INT(to->count, 7);
    CHECK_INT(ln_net_stream_failure(to->stream), LN_NET_FINE);
    bytes[size - 20] ^= 1;
    CHECK_INT(ln_net_stream_feed(to->stream, bytes, size), LN_NET_BAD_CHECKSUM);

    from->released = 0;
    from->released_tags = 0;
    for (uint32_t i = 0; i < PLACES; i++) bulk(from, LN_SYNC_PUSH, i, 5 * CHUNK);
    ln_net_slice slices[16];
    ln_net_stream_pending(from->stream, slices, 16);
    ln_net_stream_sent(from->stream, 100);
    ln_net_stream_reset(from->stream);
    CHECK_INT(from->released, PLACES);
    CHECK_INT(from->released_tags, (1 << PLACES) - 1);
    control(from, LN_SYNC_HELLO, 1, 96);
    ln_net_stream_reset(to->stream);
    to->count = 0;
    CHECK_INT(ln_net_stream_feed(to->stream, bytes, drain(from, bytes, SIZE_MAX)), LN_NET_FINE);
    CHECK_INT(to->count, 1);
    free_side(from), free_side(to);
}

/* Random messages and frames, sent and received in random pieces. */
static void test_random(int rounds) {
    uint64_t seed = 88172645463325252u;
    side *from = open_side(), *to = open_side();
    for (int round = 0; round < rounds; round++) {
        uint64_t sizes[TENSORS];
        to->count = from->released = 0;
        from->released_tags = 0;
        int expected = 0, next = 0, controls = 0;
        for (int i = 0; i < TENSORS; i++) sizes[i] = check_random(&seed) % (check_random(&seed) % 2 ? 20000 : 200);
        while (next < TENSORS || !ln_net_stream_idle(from->stream)) {
            ln_net_slice slices[16];
            const uint64_t what = check_random(&seed) % 4;
            if (what == 0 && next < TENSORS) {
                bulk(from, LN_SYNC_PUSH, (uint32_t)next, sizes[next]);
                expected += sizes[next] ? (int)((sizes[next] + CHUNK - 1) / CHUNK) : 1;
                next++;
            } else if (what == 1 && controls < 50) {
                control(from, LN_SYNC_PULL, (uint64_t)controls++, check_random(&seed) % 200);
            }
            const int count = ln_net_stream_pending(from->stream, slices, 1 + (int)(check_random(&seed) % 16));
            size_t size = count ? (size_t)(check_random(&seed) % 9000) : 0, sent = 0;
            for (int i = 0; i < count && size > 0; i++) {
                const size_t part = slices[i].size < size ? slices[i].size : size;
                receive(to, slices[i].data, part);
                size -= part, sent += part;
            }
            ln_net_stream_sent(from->stream, sent);
        }
        CHECK_INT(to->count, expected + controls);
        CHECK_INT(from->released_tags, (1 << TENSORS) - 1);
        for (uint32_t i = 0; i < TENSORS; i++) CHECK(same_tensor(from, to, i, sizes[i]));
    }
    free_side(from), free_side(to);
}

int main(int argc, char **argv) {
    unsigned char *bytes = malloc(BYTES);
    test_splits(bytes);
    test_flips(bytes);
    test_turns(bytes);
    test_full(bytes);
    test_pause(bytes);
    test_move_and_cancel(bytes);
    test_refuse(bytes);
    test_wrong_headers();
    test_drop_and_reset(bytes);
    test_random(100 * (argc > 1 ? atoi(argv[1]) : 1));
    free(bytes);
    return check_end("test_sync_stream");
}
