/* stream.h - one connection as a state machine without I/O: turns received bytes into frames, and queued frames into
 * bytes. It allocates nothing after set-up and uses no sockets and no clock, so tests and simulators can drive it,
 * too. */
#ifndef LN_NET_STREAM_H
#define LN_NET_STREAM_H

#include "net/frame.h"

typedef struct ln_net_stream ln_net_stream;

/* How the owner of a stream handles received frames. If `place` or `frame` returns a refusal, the stream fails. */
typedef struct ln_net_handler {
    void *context;
    /* Called with the header of a bulk frame before its payload is read. The checks of frame.h are done. The owner
     * checks the header against the manifest and its state, and sets *destination to the memory for the header.length
     * bytes of the payload. The transport writes them there without a copy. If the destination is NULL, the payload is
     * checked and dropped. If the owner pauses the stream during this call, the call is repeated with the same header
     * when the stream continues. */
    ln_net_refusal (*place)(void *context, ln_net_stream *stream, const ln_net_header *header, void **destination);
    /* Called when a frame is complete and its checksum is right. The payload of a control frame is valid during the
     * call; the payload of a bulk frame is the destination that `place` gave. If a bulk frame has a wrong checksum, its
     * bytes may already be at the destination; the stream then fails. */
    ln_net_refusal (*frame)(void *context, ln_net_stream *stream, const ln_net_header *header, const void *payload);
    /* Called when a queued bulk message has been sent, or will never be sent because the stream was reset, the stream
     * refuses, or the message was cancelled. Its memory belongs to the owner again. During this call the owner may
     * queue other messages, but must not reset the stream. */
    void (*released)(void *context, ln_net_stream *stream, uint64_t tag);
} ln_net_handler;

typedef struct ln_net_slice {
    const void *data;
    size_t size;
} ln_net_slice;

/* Returns the size in bytes of a stream whose queue has `bulk_places` places for bulk messages. */
size_t ln_net_stream_bytes(int bulk_places);
/* Creates a stream in memory of that size (16-byte aligned). Before ln_net_stream_open, only handshake frames are
 * allowed. */
ln_net_stream *ln_net_stream_init(void *memory, int bulk_places, const ln_net_protocol *protocol,
                                  const ln_net_handler *handler);
/* Resets the stream for another connection, and releases queued messages. */
void ln_net_stream_reset(ln_net_stream *stream);
/* Completes the handshake. Bulk frames have at most `chunk` bytes, in both directions; the other arguments are fields
 * that every header must carry. */
void ln_net_stream_open(ln_net_stream *stream, uint64_t job, uint32_t worker, uint16_t shard, uint32_t chunk);
/* Sets which types are allowed from now on (a set of LN_NET_BIT(type)), depending on the side and the state. Any other
 * type fails the stream with UNEXPECTED before its payload is read. Initially those of protocol.handshake are allowed;
 * after ln_net_stream_open, all other types. */
void ln_net_stream_expect(ln_net_stream *stream, uint64_t types);
void *ln_net_stream_user(const ln_net_stream *stream); /* the owner's pointer */
void ln_net_stream_set_user(ln_net_stream *stream, void *user);

/* ---- receiving: ask for space, write bytes there, report how many --------------------------------------------- */

void ln_net_stream_space(ln_net_stream *stream, void **data, size_t *size);
/* Takes `size` bytes that were written to the space, and calls the handler. Any result but FINE means that the stream
 * has failed: it takes no more bytes, and the refusal is queued for the peer. */
ln_net_refusal ln_net_stream_received(ln_net_stream *stream, size_t size);
/* Does the same for bytes stored elsewhere. For tests, fuzzers and simulators that do not pause the stream. */
ln_net_refusal ln_net_stream_feed(ln_net_stream *stream, const void *data, size_t size);
/* Returns the reason why the stream has failed or was made to refuse; FINE if it did neither. */
ln_net_refusal ln_net_stream_failure(const ln_net_stream *stream);
/* Stops reading because the owner's memory is full, or continues. While the stream is paused, ln_net_stream_space
 * gives 0 bytes. After continuing, call ln_net_stream_received, even with 0 bytes: it processes the bytes that arrived
 * earlier, and perhaps no further byte arrives. */
void ln_net_stream_pause(ln_net_stream *stream, bool paused);

/* Returns the number of bytes that are sure to come: the rest of the payload of a bulk frame. */
size_t ln_net_stream_expects(const ln_net_stream *stream);

/* ---- sending -------------------------------------------------------------------------------------------------- */

/* Queues a control frame and copies its payload. The owner sets type, flags, step and tensor, and before
 * ln_net_stream_open also job, worker and shard; the stream sets the rest. Returns false if there is no room now (16
 * KB are waiting) or the stream refuses. */
bool ln_net_stream_control(ln_net_stream *stream, const ln_net_header *header, const void *payload, size_t size);
/* Queues one control frame of at most 64 bytes of payload behind the bulk messages. It is sent when no bulk message has
 * chunks left, possibly in one piece with the last chunk. COMMIT is such a frame. Returns false if one is already
 * queued. */
bool ln_net_stream_behind(ln_net_stream *stream, const ln_net_header *header, const void *payload, size_t size);
/* Queues a bulk message of `size` bytes at `data`, which must not change until handler.released(tag). All queued
 * messages send one chunk in turn, in the order of queueing; control frames overtake them. Returns false if there is no
 * free place now, or if the stream is not open yet or refuses. */
bool ln_net_stream_bulk(ln_net_stream *stream, const ln_net_header *header, const void *data, uint64_t size,
                        uint64_t tag);
/* The same for bytes that are sent to many peers. sums[i] is the checksum of the i-th `chunk` bytes, or 0 until the
 * first sender with chunks of this length has computed it. `sums` must be valid as long as the bytes. */
bool ln_net_stream_shared(ln_net_stream *stream, const ln_net_header *header, const void *data, uint64_t size,
                          uint64_t tag, uint32_t *sums, uint32_t chunk);
/* Queues REFUSE as the last frame. Finishes a chunk that was already begun, and releases all messages. The stream
 * accepts no more input. `text` may be NULL. The owner closes the connection when the stream is idle, or soon. */
void ln_net_stream_refuse(ln_net_stream *stream, ln_net_refusal why, uint32_t detail, const char *text);
/* Cancels the message with this tag: it sends no further chunk. A chunk already begun is finished, then the message is
 * released. Returns false if no message has this tag. */
bool ln_net_stream_cancel(ln_net_stream *stream, uint64_t tag);
/* Returns the bytes to send next, in at most `count` slices (about one chunk, or many small frames; pass 16 slices).
 * Returns the number of slices. The slices are valid until the next call for this stream. */
int ln_net_stream_pending(ln_net_stream *stream, ln_net_slice *slices, int count);
/* Tells whether there is more to send than the last call returned. */
bool ln_net_stream_more(const ln_net_stream *stream);
/* Reports that the first `size` bytes of the pending slices were sent. */
void ln_net_stream_sent(ln_net_stream *stream, size_t size);
bool ln_net_stream_idle(const ln_net_stream *stream); /* true if nothing is left to send */
/* Moves all queued messages whose bytes are in [data, data + size) to `moved`, which has the same content. Returns the
 * number of such messages. With moved NULL, it only counts them. This lets a server update a variable while its old
 * version is still being sent. */
int ln_net_stream_move(ln_net_stream *stream, const void *data, uint64_t size, const void *moved);

#endif
