/* stream_send.h - the sending side of a stream: queues frames, and turns them into bytes. stream.h is the receiving
 * side. */
#ifndef LN_NET_STREAM_SEND_H
#define LN_NET_STREAM_SEND_H

#include "net/handler.h"

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

/* Empties the queues. stream.c calls this function when the stream is reset. */
void stream_send_reset(ln_net_stream *stream);

#endif
