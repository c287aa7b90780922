/* fuzz_sync_stream.c - feeds changed sessions and random bytes in random pieces to a stream. Its handler checks every
 * payload against a manifest and answers; another stream must accept what it sends. usage: fuzz_sync_stream COUNT SEED.
 * Build it with sanitizers, which end it with a status if they find anything. */
#include "net/refusal.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "sync/codec/manifest.h"
#include "sync/codec/messages.h"
#include "sync_frames.h"

enum { PLACES = 6 };
static const unsigned char job_digest[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

typedef struct fuzz {
    frames f;
    ln_sync_manifest *manifest;
    ln_net_stream *stream, *peer;          /* the peer receives what the stream sends */
    unsigned char *tensor[FRAMES_TENSORS]; /* of exactly its size, so that one byte too many is detected */
    uint64_t next[FRAMES_TENSORS];         /* offset at which the message of a tensor continues */
    uint64_t rows[FRAMES_TENSORS];         /* number of rows in the IDS or ROWS message of a tensor */
    unsigned char *value;                  /* the bytes to send, as long as the largest tensor */
    int64_t *ids;
    unsigned char *report;
    int queued;
    bool open; /* whether the stream is open */
    long frames, messages, refused[32], fine, sent;
} fuzz;

static void fail(const fuzz *z, const char *what) {
    printf("fuzz_sync_stream: %s; random state %llx\n", what, (unsigned long long)z->f.state);
    exit(4);
}

/* Computes the total size that a message with this header must have. Returns false if there is no such message. */
static bool size_of(fuzz *z, const ln_net_header *header, uint64_t *size) {
    const ln_sync_variable *variable = ln_sync_manifest_get(z->manifest, header->tensor);
    if (!variable) return false;
    const bool ids = header->type == LN_SYNC_IDS || header->type == LN_SYNC_ROWS;
    if ((ids || header->flags) && variable->entry.kind != LN_SYNC_SPARSE) return false;
    if (ids) {
        *size = header->total;
        if (header->offset == 0) z->rows[header->tensor] = header->total / 8;
        return header->total % 8 == 0 && header->total / 8 <= variable->entry.dims[0];
    }
    *size = header->flags ? z->rows[header->tensor] * variable->row_bytes : variable->bytes;
    return true;
}

static ln_net_refusal on_place(void *context, ln_net_stream *stream, const ln_net_header *header, void **destination) {
    fuzz *z = context;
    uint64_t size;
    (void)stream;
    if (frames_below(&z->f, 200) == 0) {
        ln_net_stream_pause(stream, true);
        return LN_NET_FINE;
    }
    if (header->type == LN_SYNC_REPORT || header->type == LN_SYNC_SEGMENT) {
        if (header->total > FRAMES_CHUNK) return LN_NET_OVER_LIMIT;
        *destination = z->report + header->offset;
        return LN_NET_FINE;
    }
    if (header->tensor >= FRAMES_TENSORS) return LN_NET_UNKNOWN_TENSOR;
    if (header->encoding) return LN_NET_WRONG_ENCODING;
    if (!size_of(z, header, &size) || header->total != size) return LN_NET_WRONG_LENGTH;
    if (frames_below(&z->f, 16) == 0) return LN_NET_FINE; /* dropped */
    const bool ids = header->type == LN_SYNC_IDS || header->type == LN_SYNC_ROWS;
    *destination = (ids ? (unsigned char *)z->ids : z->tensor[header->tensor]) + header->offset;
    return LN_NET_FINE;
}

/* Answers as a server would. */
static void reply(fuzz *z, const ln_net_header *header) {
    unsigned char payload[LN_SYNC_ACK_BYTES] = {3};
    const ln_net_header ack = {.type = LN_SYNC_ACK, .step = header->step};
    if (!z->open) return;
    const ln_net_header data = {.type = LN_SYNC_DATA, .tensor = header->tensor % FRAMES_TENSORS, .step = 1};
    if (ln_net_stream_control(z->stream, &ack, payload, sizeof payload)) z->sent++;
    if (frames_below(&z->f, 2)) ln_net_stream_behind(z->stream, &ack, payload, 60);
    if (ln_net_stream_bulk(z->stream, &data, z->value, frames_tensor_bytes(data.tensor), data.tensor)) z->queued++;
    if (frames_below(&z->f, 8) == 0) ln_net_stream_cancel(z->stream, frames_below(&z->f, FRAMES_TENSORS));
    if (frames_below(&z->f, 8) == 0) ln_net_stream_move(z->stream, z->value, frames_tensor_bytes(3), z->value);
}

static ln_net_refusal on_frame(void *context, ln_net_stream *stream, const ln_net_header *header, const void *payload) {
    fuzz *z = context;
    bool good = true;
    unsigned char *exact = NULL;
    z->frames++;
    if (payload && ln_net_crc32c(0, payload, header->length) != header->payload_crc) fail(z, "a wrong checksum passed");
    if (ln_sync_is_bulk(header->type)) {
        z->messages += header->offset + header->length == header->total;
        reply(z, header);
        return LN_NET_FINE;
    }
    if (header->length > LN_NET_CONTROL_MAX) fail(z, "a control frame is too long");
    /* Of exactly its size, so that reading beyond it is detected. */
    exact = malloc(header->length ? header->length : 1);
    if (!exact) exit(3);
    memcpy(exact, payload, header->length);
    switch (header->type) {
    case LN_SYNC_HELLO: good = ln_sync_hello_read(&(ln_sync_hello){0}, exact, header->length); break;
    case LN_SYNC_WELCOME: good = ln_sync_welcome_read(&(ln_sync_welcome){0}, exact, header->length); break;
    case LN_SYNC_TENSORS: {
        ln_sync_manifest *manifest = NULL;
        linnet_error error;
        if (ln_sync_manifest_create(FRAMES_TENSORS, &manifest, &error)) exit(3);
        good = ln_sync_manifest_take(manifest, exact, header->length) == LN_NET_FINE;
        ln_sync_manifest_free(manifest);
        break;
    }
    case LN_SYNC_READY:
        good = ln_sync_ready_read(&(ln_sync_ready){{0}, {0}}, exact, header->length);
        z->open |= good;
        if (good) ln_net_stream_open(stream, z->f.job, z->f.worker, z->f.shard, FRAMES_CHUNK);
        break;
    case LN_SYNC_REFUSE: good = ln_net_refuse_read(&(ln_net_refuse){0}, exact, header->length); break;
    case LN_SYNC_PULL:
    case LN_SYNC_SAME:
        for (size_t i = 0; good && i < header->length / 16; i++) {
            ln_sync_pull pull = {0};
            ln_sync_same same = {0};
            if (header->type == LN_SYNC_SAME)
                good = ln_sync_same_read(&same, exact, header->length, i);
            else if (i < header->length / 32)
                good = ln_sync_pull_read(&pull, exact, header->length, i) && pull.tensor < FRAMES_TENSORS;
        }
        break;
    case LN_SYNC_COMMIT: good = ln_sync_commit_read(&(ln_sync_commit){0}, exact, header->length); break;
    case LN_SYNC_ACK: good = ln_sync_ack_read(&(ln_sync_ack){0}, exact, header->length); break;
    case LN_SYNC_HEARTBEAT: good = ln_sync_heartbeat_read(&(ln_sync_heartbeat){0}, exact, header->length); break;
    case LN_SYNC_SAVED: good = ln_sync_saved_read(&(ln_sync_saved){0}, exact, header->length); break;
    default: good = header->length == 0;
    }
    free(exact);
    if (good) reply(z, header);
    return good ? LN_NET_FINE : LN_NET_MALFORMED;
}

static void on_released(void *context, ln_net_stream *stream, uint64_t tag) {
    fuzz *z = context;
    (void)stream;
    if (tag >= FRAMES_TENSORS || z->queued-- <= 0) fail(z, "released what was not queued");
}

/* The peer accepts frames into any buffer that is large enough. */
static ln_net_refusal peer_place(void *context, ln_net_stream *stream, const ln_net_header *header,
                                 void **destination) {
    fuzz *z = context;
    (void)stream;
    (void)destination;
    if (header->total != frames_tensor_bytes(header->tensor)) fail(z, "sent a message of another size");
    return LN_NET_FINE;
}

static ln_net_refusal peer_frame(void *context, ln_net_stream *stream, const ln_net_header *header,
                                 const void *payload) {
    ln_net_refuse refuse;
    (void)stream;
    if (header->type == LN_SYNC_REFUSE && !ln_net_refuse_read(&refuse, payload, header->length))
        fail(context, "sent a wrong refusal");
    return LN_NET_FINE;
}

static void peer_released(void *context, ln_net_stream *stream, uint64_t tag) {
    (void)context, (void)stream, (void)tag;
}

/* Sends some of the waiting bytes to the peer. */
static void send_some(fuzz *z, size_t most) {
    ln_net_slice slices[16];
    const int count = ln_net_stream_pending(z->stream, slices, 1 + (int)frames_below(&z->f, 16));
    size_t sent = 0;
    for (int i = 0; i < count && sent < most; i++) {
        const size_t size = slices[i].size < most - sent ? slices[i].size : most - sent;
        if (ln_net_stream_feed(z->peer, slices[i].data, size)) fail(z, "sent what a peer refuses");
        sent += size;
    }
    ln_net_stream_sent(z->stream, sent);
}

static void make_input(fuzz *z) {
    frames *f = &z->f;
    unsigned char payload[LN_NET_CONTROL_MAX];
    f->count = 0;
    f->size = 0;
    const bool open = z->open = frames_below(f, 4) > 0, server = frames_below(f, 3) > 0;
    if (frames_below(f, 64) == 0) {
        f->size = frames_below(f, 300);
        frames_fill(f, f->bytes, f->size);
        return;
    }
    if (!open) {
        frames_hello(f, job_digest);
        if (!server) frames_add(f, frames_of(LN_SYNC_TENSORS, 0, 0), payload, frames_manifest(payload));
        memset(payload, 0, LN_SYNC_WELCOME_BYTES);
        frames_add(f, frames_of(LN_SYNC_READY, 0, 0), payload, LN_SYNC_READY_BYTES);
    }
    for (uint64_t n = frames_below(f, 4); n > 0; n--) server ? frames_from_worker(f) : frames_from_server(f);
    frames_change(f);
    if (open) ln_net_stream_open(z->stream, f->job, f->worker, f->shard, FRAMES_CHUNK);
    if (open)
        ln_net_stream_expect(z->stream, server ? ln_sync_sent_by(LN_SYNC_WORKER) : ln_sync_sent_by(LN_SYNC_SERVER));
}

static void one_case(fuzz *z) {
    frames *f = &z->f;
    ln_net_refusal why = LN_NET_FINE;
    ln_net_stream_reset(z->stream);
    ln_net_stream_reset(z->peer);
    if (z->queued) fail(z, "a message was not released");
    make_input(z);
    ln_net_stream_open(z->peer, f->job, f->worker, f->shard, FRAMES_CHUNK);
    for (size_t at = 0; at < f->size && !why;) {
        void *space;
        size_t room, part = frames_below(f, 3) ? f->size - at : 1 + frames_below(f, 100);
        ln_net_stream_space(z->stream, &space, &room);
        if (room == 0) { /* paused */
            ln_net_stream_pause(z->stream, false);
            why = ln_net_stream_received(z->stream, 0);
            continue;
        }
        if (part > room) part = room;
        if (part > f->size - at) part = f->size - at;
        memcpy(space, f->bytes + at, part);
        at += part;
        why = ln_net_stream_received(z->stream, part);
        if (ln_net_stream_failure(z->stream) != why) fail(z, "two reasons for one failure");
        if (frames_below(f, 4) == 0) send_some(z, frames_below(f, 2) ? SIZE_MAX : frames_below(f, 5000));
    }
    if (why) {
        const long before = z->frames;
        ln_net_stream_feed(z->stream, f->bytes, f->size);
        if (z->frames != before) fail(z, "a stream that had failed took a frame");
    }
    z->refused[why]++;
    z->fine += why == LN_NET_FINE;
    while (!ln_net_stream_idle(z->stream)) send_some(z, SIZE_MAX);
    if (z->queued) fail(z, "an idle stream kept a message");
}

int main(int argc, char **argv) {
    static fuzz z;
    unsigned char payload[LN_NET_CONTROL_MAX];
    linnet_error error;
    long count;
    if (argc != 3 || (count = strtol(argv[1], NULL, 10)) < 1) {
        fprintf(stderr, "usage: fuzz_sync_stream COUNT SEED\n");
        return 2;
    }
    z.f.state = strtoull(argv[2], NULL, 0);
    z.f.job = get64(job_digest), z.f.worker = 3, z.f.shard = 1;
    const ln_net_handler handler = {&z, on_place, on_frame, on_released};
    const ln_net_handler peer = {&z, peer_place, peer_frame, peer_released};
    z.stream = ln_net_stream_init(malloc(ln_net_stream_bytes(PLACES)), PLACES, &ln_sync_protocol, &handler);
    z.peer = ln_net_stream_init(malloc(ln_net_stream_bytes(1)), 1, &ln_sync_protocol, &peer);
    if (ln_sync_manifest_create(FRAMES_TENSORS, &z.manifest, &error) ||
        ln_sync_manifest_take(z.manifest, payload, frames_manifest(payload)))
        return 3;
    for (uint32_t i = 0; i < FRAMES_TENSORS; i++) z.tensor[i] = calloc(1, frames_tensor_bytes(i));
    z.value = calloc(1, frames_tensor_bytes(3));
    z.ids = calloc(100, 8);
    z.report = malloc(FRAMES_CHUNK);
    for (long i = 0; i < count; i++) one_case(&z);
    printf("%ld inputs: %ld fine; %ld frames, %ld messages; refused", count, z.fine, z.frames, z.messages);
    for (int i = 1; i < 32; i++)
        if (z.refused[i]) printf(" %s %ld", ln_net_refusal_name((ln_net_refusal)i), z.refused[i]);
    printf("\n");
    for (uint32_t i = 0; i < FRAMES_TENSORS; i++) free(z.tensor[i]);
    ln_sync_manifest_free(z.manifest);
    free(z.ids), free(z.value), free(z.report), free(z.stream), free(z.peer);
    return 0;
}
