/* transport_flow.h - moves bytes between a connection and a stream. */
#ifndef LN_NET_TRANSPORT_FLOW_H
#define LN_NET_TRANSPORT_FLOW_H

#include "net/transport.h"

/* Closes the connection and frees the transport. Data that was sent earlier still arrives. NULL does nothing. */
void ln_net_transport_free(ln_net_transport *transport);
/* Returns the descriptor to poll. It stays the same until the transport is freed. */
int ln_net_transport_fd(const ln_net_transport *transport);
/* Returns a description of the peer for messages, such as its address. */
const char *ln_net_transport_peer(const ln_net_transport *transport);
/* Returns the events to poll for (transport.h, LN_NET_READ). The result is valid until receive or send is called, until
 * something is queued in the stream, and until the stream is paused or continues. */
int ln_net_transport_wants(const ln_net_transport *transport, ln_net_stream *stream);
/* ln_net_transport_receive moves bytes from the transport into the stream, and ln_net_transport_send moves bytes from
 * the stream into the transport. Both first continue to open the connection if it is not open yet. Both stop when they
 * would block, when `bound` bytes are moved (so that one peer cannot hold up others), or when the connection ends.
 * `error` is filled only for LN_NET_BROKEN. Receive calls the stream's handler, which must free neither the transport
 * nor the stream. If the stream refuses the received bytes, receive returns LN_NET_BROKEN with LINNET_PROTOCOL_ERROR.
 * The owner should then call send until REFUSE is sent. */
ln_net_flow ln_net_transport_receive(ln_net_transport *transport, ln_net_stream *stream, size_t bound,
                                     linnet_error *error);
ln_net_flow ln_net_transport_send(ln_net_transport *transport, ln_net_stream *stream, size_t bound,
                                  linnet_error *error);
/* Reads and drops bytes until `bound` bytes or a few more are read, or no more have arrived. Use it for an open
 * connection after REFUSE was sent, until the peer closes the connection. */
ln_net_flow ln_net_transport_discard(ln_net_transport *transport, size_t bound);
/* Tells whether the connection is established, including its TLS handshake. */
bool ln_net_transport_open(const ln_net_transport *transport);
/* Returns the bytes received and sent so far. */
void ln_net_transport_counts(const ln_net_transport *transport, uint64_t *received, uint64_t *sent);

#endif
