/* stream.c - one connection as a state machine: the receiving side. Small frames are parsed from a staging buffer, so
 * that one read takes many of them. The payload of a large frame is read directly into its destination. stream_send.c
 * is the sending side. */
#include "net/stream.h"

#include "net/frame.h"
#include "net/stream_send.h"
#include "net/stream_state.h"

size_t ln_net_stream_bytes(int bulk_places) {
    return sizeof(ln_net_stream) + (size_t)bulk_places * (sizeof(stream_message) + sizeof(int));
}

ln_net_stream *ln_net_stream_init(void *memory, int bulk_places, const ln_net_protocol *protocol,
                                  const ln_net_handler *handler) {
    ln_net_stream *stream = memory;
    memset(stream, 0, sizeof *stream);
    stream->protocol = protocol;
    stream->handler = *handler;
    stream->places = bulk_places;
    stream->messages = (stream_message *)(stream + 1);
    stream->order = (int *)(stream->messages + bulk_places);
    memset(stream->messages, 0, (size_t)bulk_places * sizeof *stream->messages);
    ln_net_stream_reset(stream);
    return stream;
}

void ln_net_stream_reset(ln_net_stream *stream) {
    stream_send_reset(stream);
    stream->open = stream->paused = stream->in_bulk = false;
    stream->failure = LN_NET_FINE;
    stream->expected = stream->protocol->handshake;
    stream->chunk = LN_NET_CHUNK_MIN;
    stream->begin = stream->end = 0;
    stream->connection++;
}

void ln_net_stream_open(ln_net_stream *stream, uint64_t job, uint32_t worker, uint16_t shard, uint32_t chunk) {
    stream->open = true;
    stream->job = job;
    stream->worker = worker;
    stream->shard = shard;
    stream->chunk = chunk < LN_NET_CHUNK_MIN ? LN_NET_CHUNK_MIN : chunk > LN_NET_CHUNK_MAX ? LN_NET_CHUNK_MAX : chunk;
    stream->expected = ~stream->protocol->handshake | LN_NET_BIT(LN_NET_REFUSE);
}

void ln_net_stream_expect(ln_net_stream *stream, uint64_t types) { stream->expected = types; }

void *ln_net_stream_user(const ln_net_stream *stream) { return stream->user; }

void ln_net_stream_set_user(ln_net_stream *stream, void *user) { stream->user = user; }

ln_net_refusal ln_net_stream_failure(const ln_net_stream *stream) { return stream->failure; }

void ln_net_stream_pause(ln_net_stream *stream, bool paused) { stream->paused = paused; }

void ln_net_stream_space(ln_net_stream *stream, void **data, size_t *size) {
    if (stream->in_bulk && stream->destination) {
        *data = stream->destination + stream->taken;
        *size = stream->header.length - stream->taken;
    } else {
        *data = stream->staging + stream->end;
        *size = sizeof stream->staging - stream->end;
    }
    if (stream->paused || stream->failure) *size = 0;
}

size_t ln_net_stream_expects(const ln_net_stream *stream) {
    return stream->in_bulk ? stream->header.length - stream->taken : 0;
}

static bool is_bulk(const ln_net_stream *stream, const ln_net_header *header) {
    return stream->protocol->messages[header->type].bulk;
}

/* Checks whether the header's type is allowed now, and whether its fields are those of this connection. */
static ln_net_refusal check_header(const ln_net_stream *stream, const ln_net_header *header) {
    if (!(stream->expected >> header->type & 1)) return LN_NET_UNEXPECTED;
    /* A REFUSE may come from a peer that has not completed the handshake. */
    const bool agreed = stream->open && header->type != LN_NET_REFUSE;
    if (agreed && header->job != stream->job) return LN_NET_UNKNOWN_JOB;
    if (agreed && (header->worker != stream->worker || header->shard != stream->shard)) return LN_NET_MALFORMED;
    if (is_bulk(stream, header) && header->length > stream->chunk) return LN_NET_OVER_LIMIT;
    return LN_NET_FINE;
}

static ln_net_refusal deliver(ln_net_stream *stream, const void *payload) {
    return stream->handler.frame(stream->handler.context, stream, &stream->header, payload);
}

/* Takes the next `size` bytes of the payload of a bulk frame. They lie at `data` and, if the payload has a destination,
 * are already there too. */
static ln_net_refusal bulk_bytes(ln_net_stream *stream, const unsigned char *data, size_t size) {
    stream->crc = ln_net_crc32c(stream->crc, data, size);
    stream->taken += (uint32_t)size;
    if (stream->taken < stream->header.length) return LN_NET_FINE;
    stream->in_bulk = false;
    if (stream->crc != stream->header.payload_crc) return LN_NET_BAD_CHECKSUM;
    return deliver(stream, stream->destination);
}

/* Takes the staged header and, for a control frame, its payload. Sets *more to whether the frame was taken. It was not
 * if bytes are missing, or if the owner paused the stream. */
static ln_net_refusal staged_frame(ln_net_stream *stream, bool *more) {
    const unsigned char *bytes = stream->staging + stream->begin;
    const size_t size = stream->end - stream->begin;
    ln_net_header *header = &stream->header;
    ln_net_refusal why;
    *more = false;
    if (size < LN_NET_HEADER) return LN_NET_FINE;
    if ((why = ln_net_header_read(header, bytes, stream->protocol)) || (why = check_header(stream, header))) return why;
    if (!is_bulk(stream, header)) {
        if (size < LN_NET_HEADER + header->length) return LN_NET_FINE;
        if (ln_net_crc32c(0, bytes + LN_NET_HEADER, header->length) != header->payload_crc) return LN_NET_BAD_CHECKSUM;
        stream->begin += LN_NET_HEADER + header->length;
        *more = true;
        return deliver(stream, bytes + LN_NET_HEADER);
    }
    /* For a bulk frame, the owner says where the payload belongs. */
    void *destination = NULL;
    why = stream->handler.place(stream->handler.context, stream, header, &destination);
    if (why || stream->paused) return why;
    stream->destination = destination;
    stream->begin += LN_NET_HEADER;
    stream->in_bulk = true;
    stream->taken = stream->crc = 0;
    *more = true;
    return header->length ? LN_NET_FINE : bulk_bytes(stream, stream->staging, 0);
}

/* Takes all complete staged frames. */
static ln_net_refusal staged_frames(ln_net_stream *stream) {
    ln_net_refusal why = LN_NET_FINE;
    const uint64_t connection = stream->connection;
    for (bool more = true; more && !why && !stream->paused && !stream->failure;) {
        const size_t left = stream->header.length - stream->taken, staged = stream->end - stream->begin;
        if (stream->in_bulk) {
            const size_t size = left < staged ? left : staged;
            const unsigned char *data = stream->staging + stream->begin;
            if (stream->destination && size) memcpy(stream->destination + stream->taken, data, size);
            stream->begin += size;
            more = size == left;
            why = bulk_bytes(stream, data, size);
        } else {
            why = staged_frame(stream, &more);
        }
        if (stream->connection != connection) return LN_NET_FINE; /* the handler has reset this stream */
    }
    /* Moves the remaining bytes to the front, so that even the longest frame fits into the buffer. */
    if (stream->begin) {
        memmove(stream->staging, stream->staging + stream->begin, stream->end - stream->begin);
        stream->end -= stream->begin;
        stream->begin = 0;
    }
    return why;
}

ln_net_refusal ln_net_stream_received(ln_net_stream *stream, size_t size) {
    const uint64_t connection = stream->connection;
    ln_net_refusal why = LN_NET_FINE;
    if (stream->failure) return stream->failure;
    if (stream->in_bulk && stream->destination && size)
        why = bulk_bytes(stream, stream->destination + stream->taken, size);
    else
        stream->end += size;
    if (!why && stream->connection == connection) why = staged_frames(stream);
    if (why && stream->connection == connection) ln_net_stream_refuse(stream, why, 0, NULL);
    return stream->failure;
}

ln_net_refusal ln_net_stream_feed(ln_net_stream *stream, const void *data, size_t size) {
    const unsigned char *bytes = data;
    while (size > 0 && !stream->failure) {
        void *space;
        size_t room;
        ln_net_stream_space(stream, &space, &room);
        if (room == 0) break; /* the stream is paused, so the caller keeps the remaining bytes */
        if (room > size) room = size;
        memcpy(space, bytes, room);
        bytes += room;
        size -= room;
        ln_net_stream_received(stream, room);
    }
    return stream->failure;
}
