/* stream.h - one connection as a state machine without I/O: turns received bytes into frames, and queued frames into
 * bytes. It allocates nothing after set-up and uses no sockets and no clock, so tests and simulators can drive it,
 * too. */
#ifndef LN_NET_STREAM_H
#define LN_NET_STREAM_H

#include "net/handler.h"

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

#endif
