/* stream.h - one connection as a state machine without I/O: turns received bytes into frames, and queued frames into
 * bytes. A stream allocates nothing after set-up and uses no sockets and no clock, so tests and simulators can drive
 * it, too. This header has the life of a stream and its receiving side; stream_send.h has the sending side. A stream is
 * not thread-safe. */
#ifndef LN_NET_STREAM_H
#define LN_NET_STREAM_H

#include "net/handler.h"

/* Returns the size in bytes of a stream whose queue has `bulk_places` places for bulk messages. */
size_t ln_net_stream_bytes(int bulk_places);
/* Creates a stream in memory of ln_net_stream_bytes(bulk_places) bytes, which must be 16-byte aligned. `protocol` must
 * stay valid; *handler is copied. Nothing has to be freed but the memory. Until ln_net_stream_open, only the messages
 * of protocol.handshake are allowed. */
ln_net_stream *ln_net_stream_init(void *memory, int bulk_places, const ln_net_protocol *protocol,
                                  const ln_net_handler *handler);
/* Prepares the stream for another connection: forgets everything that was received, and releases all queued messages.
 * The owner's pointer stays. */
void ln_net_stream_reset(ln_net_stream *stream);
/* Ends the handshake. From now on, every header that is sent or received has these values of job, worker and shard, and
 * bulk messages may be sent. The payload of a bulk frame has at most `chunk` bytes, in both directions; `chunk` is
 * clamped to the limits in frame.h. */
void ln_net_stream_open(ln_net_stream *stream, uint64_t job, uint32_t worker, uint16_t shard, uint32_t chunk);
/* Sets which types the peer may send from now on; `types` is a set of LN_NET_BIT(type). A frame of any other type fails
 * the stream with LN_NET_UNEXPECTED before its payload is read. Without this call, the types of protocol.handshake are
 * allowed before ln_net_stream_open; after it, REFUSE and all types outside protocol.handshake are allowed. */
void ln_net_stream_expect(ln_net_stream *stream, uint64_t types);
/* Get and set a pointer that the stream stores for its owner. It is NULL at first. */
void *ln_net_stream_user(const ln_net_stream *stream);
void ln_net_stream_set_user(ln_net_stream *stream, void *user);

/* ---- receiving: ask for space, write bytes there, report how many --------------------------------------------- */

/* Gives the memory in which the next received bytes belong. *size is 0 while the stream is paused, and after it failed.
 * The memory is valid until the next call of a function that receives. */
void ln_net_stream_space(ln_net_stream *stream, void **data, size_t *size);
/* Takes `size` bytes that were written to the space, and calls the handler for each complete frame. If the result is
 * not LN_NET_FINE, the stream has failed: the stream takes no more bytes, and REFUSE is queued for the peer. */
ln_net_refusal ln_net_stream_received(ln_net_stream *stream, size_t size);
/* Does the same for bytes that are stored elsewhere, and copies them. A paused stream
 * takes only some of the bytes, and the function does not say how many, so it is only for tests, fuzzers and simulators
 * that do not pause the stream. */
ln_net_refusal ln_net_stream_feed(ln_net_stream *stream, const void *data, size_t size);
/* Returns the reason why the stream has failed, or why its owner refused the peer. Otherwise returns LN_NET_FINE. */
ln_net_refusal ln_net_stream_failure(const ln_net_stream *stream);
/* Stops reading, for example because the owner's memory is full, or continues. While the stream is paused,
 * ln_net_stream_space gives 0 bytes. To continue, call this function with false and then ln_net_stream_received, even
 * with 0 bytes: that call processes the bytes that arrived earlier, and perhaps no further byte will arrive. */
void ln_net_stream_pause(ln_net_stream *stream, bool paused);

/* Returns the number of bytes that the peer must still send before the next frame can be delivered: the rest of the
 * payload of a bulk frame, or 0 if no bulk frame is being received. */
size_t ln_net_stream_expects(const ln_net_stream *stream);

#endif
