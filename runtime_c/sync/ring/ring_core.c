/* ring_core.c - decides when each piece is sent, and adds or stores received pieces.
 * A sender needs only two counters: piece p of round r may be sent when piece p of round r - 1 has arrived. */
#include "sync/ring/ring_core.h"

#include "net/refusal.h"
#include "net/stream.h"
#include "net/stream_send.h"

#include <stdio.h>
#include <string.h>

size_t ln_sync_ring_width(int dtype) {
    switch (dtype) {
    case LINNET_F32:
    case LINNET_I32: return 4;
    case LINNET_F64:
    case LINNET_I64: return 8;
    default: return 0;
    }
}

/* Computes to = to + from, and divides after the last addition. Integers wrap. */
#define COMBINE(type)                                                                                                  \
    do {                                                                                                               \
        type *restrict a = to;                                                                                         \
        const type *restrict b = from;                                                                                 \
        for (size_t i = 0; i < n; i++) a[i] = a[i] + b[i];                                                             \
    } while (0)
#define DIVIDE(type)                                                                                                   \
    do {                                                                                                               \
        type *restrict a = to;                                                                                         \
        for (size_t i = 0; i < n; i++) a[i] /= (type)by;                                                               \
    } while (0)

static void combine(int dtype, void *to, const void *from, size_t n) {
    switch (dtype) {
    case LINNET_F32: COMBINE(float); break;
    case LINNET_F64: COMBINE(double); break;
    case LINNET_I32: COMBINE(uint32_t); break;
    case LINNET_I64: COMBINE(uint64_t); break;
    }
}

static void divide(int dtype, void *to, size_t n, int by) {
    switch (dtype) {
    case LINNET_F32: DIVIDE(float); break;
    case LINNET_F64: DIVIDE(double); break;
    }
}

static uint64_t first_of(const ln_sync_ring *ring, uint64_t segment) { /* first element of the segment */
    const uint64_t size = (uint64_t)ring->size, rest = ring->count % size;
    return ring->count / size * segment + (segment < rest ? segment : rest);
}

/* Finds the piece with this number among the sent pieces (behind 0) or the received pieces (behind 1). */
static void piece_at(const ln_sync_ring *ring, uint64_t number, int behind, unsigned char **data, size_t *bytes) {
    const int64_t round = (int64_t)(number / ring->pieces), size = ring->size;
    const uint64_t segment = (uint64_t)(((ring->rank - round - behind) % size + 2 * size) % size);
    const uint64_t begin = first_of(ring, segment) * ring->width, end = first_of(ring, segment + 1) * ring->width;
    const uint64_t offset = number % ring->pieces * ring->piece;
    const uint64_t at = begin + offset < end ? begin + offset : end, left = end - at;
    *data = ring->data + at;
    *bytes = left < ring->piece ? (size_t)left : ring->piece;
}

/* Queues the pieces that may be sent. */
static void pump(ln_sync_ring *ring) {
    while (ring->active && ring->queued < ring->all && ring->queued < ring->pieces + ring->received) {
        unsigned char *data;
        size_t bytes;
        piece_at(ring, ring->queued, 0, &data, &bytes);
        const ln_net_header header = {.type = LN_SYNC_SEGMENT, .step = ring->number, .tensor = (uint32_t)ring->queued};
        if (!ln_net_stream_bulk(ring->right, &header, data, bytes, ring->queued)) break;
        ring->queued++;
    }
}

static ln_net_refusal place(void *context, ln_net_stream *stream, const ln_net_header *header, void **destination) {
    ln_sync_ring *ring = context;
    unsigned char *data;
    size_t bytes;
    if (stream != ring->left || header->type != LN_SYNC_SEGMENT) return LN_NET_UNEXPECTED;
    if (!ring->active || (header->step == ring->number + 1 && ring->received == ring->all)) {
        ring->paused = true; /* the left neighbour has begun the next all-reduce, and waits until this rank begins it */
        ln_net_stream_pause(stream, true);
        return LN_NET_FINE;
    }
    if (header->step != ring->number || ring->received == ring->all || header->tensor != (uint32_t)ring->received)
        return LN_NET_UNEXPECTED;
    piece_at(ring, ring->received, 1, &data, &bytes);
    if (header->encoding != 0) return LN_NET_WRONG_ENCODING;
    if (header->total != bytes || header->length != bytes) {
        ring->lost = ln_sync_ring_left(ring);
        ring->why = LN_NET_WRONG_LENGTH;
        snprintf(ring->text, sizeof ring->text, "it sends %llu bytes, but rank %d expects %zu",
                 (unsigned long long)header->total, ring->rank, bytes);
        ln_net_stream_refuse(stream, ring->why, (uint32_t)ring->lost + 1, ring->text);
        return LN_NET_FINE; /* already refused with a text */
    }
    const bool adds = ring->received / ring->pieces < (uint64_t)ring->size - 1;
    *destination = adds ? ring->scratch : data;
    return LN_NET_FINE;
}

static ln_net_refusal segment_came(ln_sync_ring *ring, const void *payload) {
    const uint64_t round = ring->received / ring->pieces, adding = (uint64_t)ring->size - 1;
    unsigned char *data;
    size_t bytes;
    if (round < adding) {
        piece_at(ring, ring->received, 1, &data, &bytes);
        combine(ring->dtype, data, payload, bytes / ring->width);
        if (round + 1 == adding && ring->operation == LINNET_RING_MEAN)
            divide(ring->dtype, data, bytes / ring->width, ring->size);
    }
    ring->received++;
    pump(ring);
    return LN_NET_FINE;
}

static ln_net_refusal frame(void *context, ln_net_stream *stream, const ln_net_header *header, const void *payload) {
    ln_sync_ring *ring = context;
    ln_net_refuse refuse;
    switch (header->type) {
    case LN_SYNC_SEGMENT: return segment_came(ring, payload);
    case LN_SYNC_HEARTBEAT: return LN_NET_FINE;
    case LN_SYNC_BYE: ring->left_said_bye = ring->left_said_bye || stream == ring->left; return LN_NET_FINE;
    case LN_SYNC_REFUSE:
        if (!ln_net_refuse_read(&refuse, payload, header->length)) return LN_NET_MALFORMED;
        if (ring->lost >= 0) return LN_NET_FINE;
        ring->lost = refuse.detail > 0 && refuse.detail <= (uint32_t)ring->size ? (int)refuse.detail - 1
                     : stream == ring->left                                     ? ln_sync_ring_left(ring)
                                                                                : ln_sync_ring_right(ring);
        ring->why = refuse.why;
        memcpy(ring->text, refuse.text, sizeof ring->text);
        return LN_NET_FINE;
    default: return LN_NET_UNEXPECTED;
    }
}

static void released(void *context, ln_net_stream *stream, uint64_t tag) {
    ln_sync_ring *ring = context;
    (void)tag;
    if (stream != ring->right) return;
    ring->released++;
    pump(ring);
}

ln_net_handler ln_sync_ring_handler(ln_sync_ring *ring) { return (ln_net_handler){ring, place, frame, released}; }

void ln_sync_ring_begin(ln_sync_ring *ring, void *data, uint64_t count, int dtype, int operation) {
    const uint64_t size = (uint64_t)ring->size;
    ring->data = data;
    ring->count = count;
    ring->dtype = dtype;
    ring->operation = operation;
    ring->width = ln_sync_ring_width(dtype);
    const uint64_t longest = (count / size + (count % size != 0)) * ring->width;
    ring->pieces = longest / ring->piece + (longest % ring->piece != 0);
    if (ring->pieces == 0) ring->pieces = 1;
    ring->all = 2 * (size - 1) * ring->pieces;
    ring->received = ring->queued = ring->released = 0;
    ring->number++;
    ring->active = true;
    pump(ring);
    if (ring->paused) {
        ring->paused = false;
        ln_net_stream_pause(ring->left, false);
        ln_net_stream_received(ring->left, 0);
    }
}

bool ln_sync_ring_done(ln_sync_ring *ring) {
    if (ring->received < ring->all || ring->released < ring->all) return false;
    ring->active = false;
    return true;
}

void ln_sync_ring_tell(ln_sync_ring *ring, int lost, ln_net_refusal why, const char *text) {
    if (ln_net_stream_failure(ring->right) == LN_NET_FINE)
        ln_net_stream_refuse(ring->right, why, (uint32_t)lost + 1, text);
}
