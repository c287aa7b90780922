/* stream_send.h - the sending side of a stream: queues frames, and turns them into bytes. stream.h is the receiving
 * side. */
#ifndef LN_NET_STREAM_SEND_H
#define LN_NET_STREAM_SEND_H

#include "net/handler.h"

/* Queues a control frame and copies its payload. The owner sets the header's type, flags, step and tensor,
 * and before ln_net_stream_open also job, worker and shard. The stream sets the other fields. Returns false if the
 * payload is longer than LN_NET_CONTROL_MAX, if the queue of 16 KB has no room now, or if the stream refuses. */
bool ln_net_stream_control(ln_net_stream *stream, const ln_net_header *header, const void *payload, size_t size);
/* Queues one control frame of at most 64 bytes of payload behind the bulk messages. It is sent when no bulk message has
 * chunks left, possibly in the same write as the last chunk. COMMIT is such a frame. Returns false if such a frame is
 * already queued, if the payload is too long, or if the stream refuses. */
bool ln_net_stream_behind(ln_net_stream *stream, const ln_net_header *header, const void *payload, size_t size);
/* Queues a bulk message of `size` bytes. The bytes at `data` must not change until handler.released(tag) is called. The
 * owner sets the header's type, flags, encoding, step and tensor. The queued messages take turns: each sends one chunk,
 * in the order of queueing. Control frames overtake bulk messages. Returns false if all bulk places are taken now, if
 * the stream is not open yet, or if it refuses. */
bool ln_net_stream_bulk(ln_net_stream *stream, const ln_net_header *header, const void *data, uint64_t size,
                        uint64_t tag);
/* Does the same for bytes that are sent to many peers, so that each checksum is computed only once. sums[i] is the
 * checksum of the i-th `chunk` bytes. It is 0 until the first stream whose chunks have this length computes it. A
 * stream with another length of chunks does not use `sums`. `sums` must stay valid as long as the bytes. */
bool ln_net_stream_shared(ln_net_stream *stream, const ln_net_header *header, const void *data, uint64_t size,
                          uint64_t tag, uint32_t *sums, uint32_t chunk);
/* Does the same for a message that lies in two places. No chunk has bytes of both. */
bool ln_net_stream_gather(ln_net_stream *stream, const ln_net_header *header, const ln_net_slice *head,
                          const ln_net_slice *rest, uint64_t tag);
/* Queues REFUSE as the last frame. Chunks that were already begun are still sent; all other chunks are dropped, and all
 * messages are released. From now on the stream accepts no input. Does nothing if the stream has already failed.
 * `text` may be NULL. The owner closes the connection when the stream is idle, or after a short time limit. */
void ln_net_stream_refuse(ln_net_stream *stream, ln_net_refusal why, uint32_t detail, const char *text);
/* Cancels the message with this tag. Its chunks that were already begun are still sent, then the message is released;
 * this may happen during the call. Returns false if no message has this tag. */
bool ln_net_stream_cancel(ln_net_stream *stream, uint64_t tag);
/* Fills at most `count` slices with the bytes to send next, and returns the number of slices. There are at most 16
 * slices, with about one chunk or many small frames. The slices are valid until the next call for this stream. */
int ln_net_stream_pending(ln_net_stream *stream, ln_net_slice *slices, int count);
/* Tells whether bulk messages have chunks that are not begun yet. */
bool ln_net_stream_more(const ln_net_stream *stream);
/* Reports that the first `size` bytes of the pending slices were sent. Calls handler.released for messages that are now
 * completely sent. */
void ln_net_stream_sent(ln_net_stream *stream, size_t size);
bool ln_net_stream_idle(const ln_net_stream *stream); /* true if nothing is left to send */
/* Makes all queued messages whose bytes lie in [data, data + size) read the same bytes from `moved`, which must have
 * the same content. Returns the number of these messages. If `moved` is NULL, the function only counts them. A server
 * can so update a variable while the old value is still being sent. */
int ln_net_stream_move(ln_net_stream *stream, const void *data, uint64_t size, const void *moved);

/* Empties the queues and releases all messages. Only stream.c calls this function, when the stream is reset. */
void stream_send_reset(ln_net_stream *stream);

#endif
