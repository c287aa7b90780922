/* stream_send.c - one connection as a state machine: the sending side. Control frames wait in a ring of bytes. Bulk
 * messages wait in a queue, where they send chunks in turn. To begin a frame means to compute its checksum and to make
 * its bytes into pieces. A frame is begun only when few bytes before it are still unsent, so that control frames can
 * overtake bulk messages. */
#include "net/stream_send.h"

#include "net/frame.h"
#include "net/refusal.h"
#include "net/stream_state.h"

/* Returns the position in `controls` of the byte that is `at` bytes after the first unsent byte. */
static size_t ring_at(const ln_net_stream *stream, size_t at) { return (stream->control_sent + at) % CONTROLS; }

static void ring_put(ln_net_stream *stream, const void *data, size_t size) {
    const size_t at = ring_at(stream, stream->control), first = size < CONTROLS - at ? size : CONTROLS - at;
    memcpy(stream->controls + at, data, first);
    if (size > first) memcpy(stream->controls, (const unsigned char *)data + first, size - first);
    stream->control += size;
    stream->unbegun += size;
}

/* Frees the place of a message, then tells the owner. This order matters, because the owner may queue its next message
 * in the same place. */
static void release(ln_net_stream *stream, int i) {
    const uint64_t tag = stream->messages[i].tag;
    stream->messages[i].used = false;
    stream->handler.released(stream->handler.context, stream, tag);
}

static void queue(ln_net_stream *stream, int message) {
    stream->order[(stream->first + stream->waiting++) % stream->places] = message;
}

/* Removes message `i` from the queue, so that none of its further chunks is sent. Releases the message if no chunk is
 * under way. */
static void unqueue(ln_net_stream *stream, int i) {
    int kept = 0;
    for (int k = 0; k < stream->waiting; k++) {
        const int other = stream->order[(stream->first + k) % stream->places];
        if (other != i) stream->order[(stream->first + kept++) % stream->places] = other;
    }
    stream->waiting = kept;
    stream->messages[i].whole = true;
    if (stream->messages[i].flying == 0) release(stream, i);
}

void stream_send_reset(ln_net_stream *stream) {
    stream->waiting = stream->first = stream->pieces = stream->next_header = 0;
    stream->under_way = stream->control = stream->unbegun = stream->control_sent = stream->refusal = stream->behind = 0;
    for (int i = 0; i < stream->places; i++) stream->messages[i].whole = stream->messages[i].used;
    stream->open = false; /* otherwise messages that the owner queues now would be sent to the next peer */
    for (int i = 0; i < stream->places; i++)
        if (stream->messages[i].used) release(stream, i);
}

/* Sets the fields that every frame of this connection carries. */
static ln_net_header agreed(const ln_net_stream *stream, const ln_net_header *given) {
    ln_net_header header = *given;
    header.version = LN_NET_VERSION;
    if (stream->open) {
        header.job = stream->job;
        header.worker = stream->worker;
        header.shard = stream->shard;
    }
    return header;
}

static ln_net_header control_header(const ln_net_stream *stream, const ln_net_header *given, const void *payload,
                                    size_t size) {
    ln_net_header header = agreed(stream, given);
    header.encoding = 0;
    header.length = (uint32_t)size;
    header.total = size;
    header.offset = 0;
    header.payload_crc = ln_net_crc32c(0, payload, size);
    return header;
}

bool ln_net_stream_control(ln_net_stream *stream, const ln_net_header *given, const void *payload, size_t size) {
    unsigned char bytes[LN_NET_HEADER];
    if (stream->failure || size > LN_NET_CONTROL_MAX || LN_NET_HEADER + size > CONTROLS - stream->control) return false;
    const ln_net_header header = control_header(stream, given, payload, size);
    ln_net_header_write(&header, bytes);
    ring_put(stream, bytes, sizeof bytes);
    if (size) ring_put(stream, payload, size);
    return true;
}

bool ln_net_stream_behind(ln_net_stream *stream, const ln_net_header *given, const void *payload, size_t size) {
    if (stream->failure || stream->behind || size > BEHIND_MAX) return false;
    const ln_net_header header = control_header(stream, given, payload, size);
    ln_net_header_write(&header, stream->behind_frame);
    if (size) memcpy(stream->behind_frame + LN_NET_HEADER, payload, size);
    stream->behind = LN_NET_HEADER + size;
    return true;
}

bool ln_net_stream_bulk(ln_net_stream *stream, const ln_net_header *header, const void *data, uint64_t size,
                        uint64_t tag) {
    return ln_net_stream_shared(stream, header, data, size, tag, NULL, 0);
}

/* Queues a message whose bytes and checksums the caller then sets; NULL: there is no place. */
static stream_message *queue_message(ln_net_stream *stream, const ln_net_header *header, uint64_t tag) {
    if (stream->failure || !stream->open) return NULL;
    for (int i = 0; i < stream->places; i++) {
        stream_message *message = &stream->messages[i];
        if (message->used) continue;
        *message = (stream_message){
            .tag = tag,
            .step = header->step,
            .tensor = header->tensor,
            .flags = header->flags,
            .type = header->type,
            .encoding = header->encoding,
            .used = true,
        };
        queue(stream, i);
        return message;
    }
    return NULL;
}

bool ln_net_stream_shared(ln_net_stream *stream, const ln_net_header *header, const void *data, uint64_t size,
                          uint64_t tag, uint32_t *sums, uint32_t chunk) {
    stream_message *message = queue_message(stream, header, tag);
    if (message == NULL) return false;
    message->data = data, message->size = size;
    message->sums = chunk == stream->chunk ? sums : NULL;
    return true;
}

bool ln_net_stream_gather(ln_net_stream *stream, const ln_net_header *header, const ln_net_slice *head,
                          const ln_net_slice *rest, uint64_t tag) {
    stream_message *message = queue_message(stream, header, tag);
    if (message == NULL) return false;
    message->head = head->data, message->head_size = head->size;
    message->data = rest->data, message->size = head->size + rest->size;
    return true;
}

bool ln_net_stream_cancel(ln_net_stream *stream, uint64_t tag) {
    for (int i = 0; i < stream->places; i++)
        if (stream->messages[i].used && stream->messages[i].tag == tag) {
            if (!stream->messages[i].whole) unqueue(stream, i);
            return true;
        }
    return false;
}

void ln_net_stream_refuse(ln_net_stream *stream, ln_net_refusal why, uint32_t detail, const char *text) {
    ln_net_refuse refuse = {.why = why, .detail = detail};
    unsigned char payload[LN_NET_REFUSE_BYTES + LN_NET_REFUSE_TEXT];
    if (stream->failure || why == LN_NET_FINE) return;
    stream->failure = why;
    if (text) strncpy(refuse.text, text, LN_NET_REFUSE_TEXT);
    const size_t size = ln_net_refuse_write(&refuse, payload);
    const ln_net_header given = {.type = LN_NET_REFUSE, .worker = LN_NET_NO_WORKER};
    const ln_net_header header = control_header(stream, &given, payload, size);
    ln_net_header_write(&header, stream->refusal_frame);
    memcpy(stream->refusal_frame + LN_NET_HEADER, payload, size);
    stream->refusal = LN_NET_HEADER + size;
    stream->behind = 0;
    while (stream->waiting) unqueue(stream, stream->order[stream->first]);
}

/* ---- turning frames into pieces ------------------------------------------------------------------------------- */

static void add_piece(ln_net_stream *stream, const unsigned char *data, size_t size, int message) {
    if (size == 0) return;
    stream->piece[stream->pieces++] = (stream_piece){data, size, message};
    stream->under_way += size;
}

/* Begins all control frames that wait. They become one piece, or two pieces if the ring wraps around. */
static void begin_controls(ln_net_stream *stream) {
    const size_t at = ring_at(stream, stream->control - stream->unbegun);
    const size_t first = stream->unbegun < CONTROLS - at ? stream->unbegun : CONTROLS - at;
    add_piece(stream, stream->controls + at, first, IN_CONTROLS);
    add_piece(stream, stream->controls, stream->unbegun - first, IN_CONTROLS);
    stream->unbegun = 0;
}

/* Begins the next chunk of the message whose turn it is. */
static void begin_chunk(ln_net_stream *stream) {
    const int i = stream->order[stream->first];
    stream_message *message = &stream->messages[i];
    const bool in_head = message->begun < message->head_size;
    const uint64_t left = (in_head ? message->head_size : message->size) - message->begun;
    const uint32_t length = left < stream->chunk ? (uint32_t)left : stream->chunk;
    const unsigned char *data =
        in_head ? message->head + message->begun : message->data + (message->begun - message->head_size);
    ln_net_header header = agreed(stream, &(ln_net_header){.type = message->type,
                                                           .flags = message->flags,
                                                           .encoding = message->encoding,
                                                           .step = message->step,
                                                           .tensor = message->tensor});
    header.length = length;
    header.total = message->size;
    header.offset = message->begun;
    uint32_t *const sum = message->sums ? &message->sums[message->begun / stream->chunk] : NULL;
    header.payload_crc = sum && *sum ? *sum : ln_net_crc32c(0, data, length);
    if (sum) *sum = header.payload_crc;
    unsigned char *bytes = stream->headers[stream->next_header];
    stream->next_header = (stream->next_header + 1) % PIECES;
    ln_net_header_write(&header, bytes);
    message->begun += length;
    message->flying++;
    stream->first = (stream->first + 1) % stream->places;
    stream->waiting--;
    message->whole = message->begun == message->size;
    if (!message->whole) queue(stream, i);
    /* The frame of an empty message is only a header. */
    add_piece(stream, bytes, LN_NET_HEADER, length ? IN_PLACE : i);
    add_piece(stream, data, length, i);
}

int ln_net_stream_pending(ln_net_stream *stream, ln_net_slice *slices, int count) {
    /* Each iteration adds at most two pieces. */
    while (stream->pieces + 2 <= PIECES && stream->under_way < BATCH) {
        if (stream->behind && !stream->waiting && stream->behind <= CONTROLS - stream->control) {
            ring_put(stream, stream->behind_frame, stream->behind);
            stream->behind = 0;
        }
        if (stream->unbegun)
            begin_controls(stream);
        else if (stream->waiting)
            begin_chunk(stream);
        else if (stream->refusal) {
            add_piece(stream, stream->refusal_frame, stream->refusal, IN_PLACE);
            stream->refusal = 0;
        } else
            break;
    }
    const int given = count < stream->pieces ? count : stream->pieces;
    for (int i = 0; i < given; i++) slices[i] = (ln_net_slice){stream->piece[i].data, stream->piece[i].size};
    return given;
}

bool ln_net_stream_more(const ln_net_stream *stream) { return stream->waiting > 0; }

void ln_net_stream_sent(ln_net_stream *stream, size_t size) {
    int done[PIECES], whole = 0, out = 0;
    const uint64_t connection = stream->connection;
    while (size > 0 && out < stream->pieces) {
        stream_piece *piece = &stream->piece[out];
        const size_t part = size < piece->size ? size : piece->size;
        piece->data += part;
        piece->size -= part;
        size -= part;
        stream->under_way -= part;
        if (piece->message == IN_CONTROLS) {
            stream->control_sent = ring_at(stream, part);
            stream->control -= part;
        }
        if (piece->size) break;
        if (piece->message >= 0 && --stream->messages[piece->message].flying == 0 &&
            stream->messages[piece->message].whole)
            done[whole++] = piece->message;
        out++;
    }
    /* Removes the pieces that were completely sent. */
    stream->pieces -= out;
    memmove(stream->piece, stream->piece + out, (size_t)stream->pieces * sizeof *stream->piece);
    /* Tells the owner last, when the stream is consistent, because the owner may queue more messages. */
    for (int i = 0; i < whole && stream->connection == connection; i++) release(stream, done[i]);
}

bool ln_net_stream_idle(const ln_net_stream *stream) {
    return stream->pieces == 0 && stream->control == 0 && stream->waiting == 0 && stream->behind == 0 &&
           stream->refusal == 0;
}

int ln_net_stream_move(ln_net_stream *stream, const void *data, uint64_t size, const void *moved) {
    const uintptr_t begin = (uintptr_t)data;
    const unsigned char *to = moved;
    int found = 0;
    for (int i = 0; i < stream->places; i++) {
        stream_message *message = &stream->messages[i];
        const uintptr_t at = (uintptr_t)message->data - begin;
        if (!message->used || (uintptr_t)message->data < begin || at > size || message->size > size - at) continue;
        found++;
        if (!moved) continue;
        for (int k = 0; k < stream->pieces; k++)
            if (stream->piece[k].message == i && message->size)
                stream->piece[k].data = to + at + (stream->piece[k].data - message->data);
        message->data = to + at;
        message->sums = NULL;
    }
    return found;
}
