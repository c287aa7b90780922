/* stream.h - one connection as a machine without input or output: bytes in, frames out; frames in, bytes out.
 * It takes its memory at set-up and none after; it knows no sockets and no clock, so tests and simulators drive it too.
 */
#ifndef LN_SYNC_STREAM_H
#define LN_SYNC_STREAM_H

#include "sync/wire.h"

typedef struct ln_sync_stream ln_sync_stream;

/* What the owner of a stream does with what comes. Either function may refuse, which fails the stream. */
typedef struct ln_sync_handler {
    void *context;
    /* The header of a bulk frame was checked as far as wire.h can. The owner checks it against the manifest and the
     * state, and says where its header.length bytes go (they come straight from the transport: no copy). Before
     * anything is taken in. A destination of NULL: they are checked and dropped. A stream that the owner pauses in here
     * asks again with the same header when it goes on. */
    ln_sync_refusal (*place)(void *context, ln_sync_stream *stream, const ln_sync_header *header, void **destination);
    /* A frame is whole and its checksum right. payload: of a control frame, valid during the call; of a bulk frame, the
     * place given (where the bytes of a frame whose checksum is wrong may have come too: the stream then fails). */
    ln_sync_refusal (*frame)(void *context, ln_sync_stream *stream, const ln_sync_header *header, const void *payload);
    /* A bulk message that was queued has left, or never will (the stream is reset, refuses, or the message was
     * cancelled): its memory is the owner's again. It may queue others in here, but not reset the stream. */
    void (*released)(void *context, ln_sync_stream *stream, uint64_t tag);
} ln_sync_handler;

typedef struct ln_sync_slice {
    const void *data;
    size_t size;
} ln_sync_slice;

/* Bytes of a stream with this many places for bulk messages in its queue. */
size_t ln_sync_stream_bytes(int bulk_places);
/* Makes a stream in memory of that size (16-byte aligned). Before ln_sync_stream_open only the frames of the handshake
 * may come. */
ln_sync_stream *ln_sync_stream_init(void *memory, int bulk_places, const ln_sync_handler *handler);
/* Back to the beginning, for another connection; queued messages are released. */
void ln_sync_stream_reset(ln_sync_stream *stream);
/* The handshake is done: chunk bytes per bulk frame at most, both ways; and the fields every header must carry. */
void ln_sync_stream_open(ln_sync_stream *stream, uint64_t job, uint32_t worker, uint16_t shard, uint32_t chunk);
/* Which types may come from now on, bits 1 << type: as the side and the state allow. Any other fails the stream with
 * UNEXPECTED before a byte of payload is taken. At set-up LN_SYNC_HANDSHAKE; after ln_sync_stream_open all but the
 * handshake's. */
void ln_sync_stream_expect(ln_sync_stream *stream, uint32_t types);
void *ln_sync_stream_user(const ln_sync_stream *stream); /* the owner's pointer */
void ln_sync_stream_set_user(ln_sync_stream *stream, void *user);

/* ---- receiving: ask for space, put bytes there, say how many -------------------------------------------------- */

void ln_sync_stream_space(ln_sync_stream *stream, void **data, size_t *size);
/* Takes `size` bytes that were put there; calls the handler. Anything but FINE: the stream has failed and takes nothing
 * more; the refusal is queued for the peer. */
ln_sync_refusal ln_sync_stream_received(ln_sync_stream *stream, size_t size);
/* The same for bytes that lie elsewhere: for tests, fuzzers and simulators, as long as nobody pauses the stream. */
ln_sync_refusal ln_sync_stream_feed(ln_sync_stream *stream, const void *data, size_t size);
/* Why the stream has failed or was made to refuse; FINE: neither. */
ln_sync_refusal ln_sync_stream_failure(const ln_sync_stream *stream);
/* Stop reading for now (the owner's memory is full), and go on: space() gives 0 bytes meanwhile. What had come before
 * is taken by the next ln_sync_stream_received, of 0 bytes too: call that when you go on, no byte may ever follow. */
void ln_sync_stream_pause(ln_sync_stream *stream, bool paused);

/* Bytes that are sure to come: what is left of the payload of a bulk frame. */
size_t ln_sync_stream_expects(const ln_sync_stream *stream);

/* ---- sending -------------------------------------------------------------------------------------------------- */

/* Queues a control frame; the payload is copied. type, flags, step and tensor are the owner's, and job, worker and
 * shard before ln_sync_stream_open; the rest is filled in. False: no room now (16 KB wait to be sent), or the stream
 * refuses. */
bool ln_sync_stream_control(ln_sync_stream *stream, const ln_sync_header *header, const void *payload, size_t size);
/* Queues one control frame of at most 64 bytes of payload behind the messages: it goes out, perhaps with the last of
 * them in one piece, when none of them has chunks to come. COMMIT is such a frame. False: one waits already. */
bool ln_sync_stream_behind(ln_sync_stream *stream, const ln_sync_header *header, const void *payload, size_t size);
/* Queues a bulk message of `size` bytes at `data`, which stays as it is until handler.released(tag). Chunks of all
 * queued messages take turns, in the order in which they were queued; control frames overtake them. False: no place
 * now, not open yet, or the stream refuses. */
bool ln_sync_stream_bulk(ln_sync_stream *stream, const ln_sync_header *header, const void *data, uint64_t size,
                         uint64_t tag);
/* The same for bytes that go to many: sums[i] is the checksum of the i-th `chunk` bytes, 0 as long as nobody has needed
 * it; made by whoever sends first, where this stream's chunks are as long. It stays as long as the bytes do. */
bool ln_sync_stream_shared(ln_sync_stream *stream, const ln_sync_header *header, const void *data, uint64_t size,
                           uint64_t tag, uint32_t *sums, uint32_t chunk);
/* Queues REFUSE and nothing after it; messages are released but for a chunk that was begun. Nothing more is taken in.
 * text may be NULL. Close when the stream is idle, or soon. */
void ln_sync_stream_refuse(ln_sync_stream *stream, ln_sync_refusal why, uint32_t detail, const char *text);
/* The message with this tag sends no chunk any more; one that was begun is finished, and then it is released. False: no
 * message has this tag. */
bool ln_sync_stream_cancel(ln_sync_stream *stream, uint64_t tag);
/* The bytes to send next, in at most `count` slices (of one chunk or so, or many small frames: give it 16); returns how
 * many slices. They stay valid until the next call for this stream. */
int ln_sync_stream_pending(ln_sync_stream *stream, ln_sync_slice *slices, int count);
/* There is more to send than it gave. */
bool ln_sync_stream_more(const ln_sync_stream *stream);
/* So many of them were sent. */
void ln_sync_stream_sent(ln_sync_stream *stream, size_t size);
bool ln_sync_stream_idle(const ln_sync_stream *stream); /* nothing is left to send */
/* Messages queued whose bytes lie in [data, data + size): they lie at `moved` from now on, with the same content.
 * Returns how many (with moved NULL: only counts). So a server may update a variable while an old version is still on
 * its way. */
int ln_sync_stream_move(ln_sync_stream *stream, const void *data, uint64_t size, const void *moved);

#endif
