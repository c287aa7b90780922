/* transport_flow.h - moves bytes between a connection and a stream. */
#ifndef LN_NET_TRANSPORT_FLOW_H
#define LN_NET_TRANSPORT_FLOW_H

#include "net/transport.h"

/* Closes the connection. Data that was sent earlier still arrives. */
void ln_net_transport_free(ln_net_transport *transport);
int ln_net_transport_fd(const ln_net_transport *transport); /* does not change while the transport exists */
/* Describes the peer, for messages. */
const char *ln_net_transport_peer(const ln_net_transport *transport);
int ln_net_transport_wants(const ln_net_transport *transport, ln_net_stream *stream);
/* Receive moves bytes from the transport into the stream, and send moves bytes from the stream into the transport. Both
 * stop when they would block, when `bound` bytes are moved (so that one peer cannot hold up others), or when the
 * connection ends. Receive calls the stream's handler, which must free neither the transport nor the stream. If the
 * stream refuses what arrived, receive returns BROKEN (LINNET_PROTOCOL_ERROR); send then still delivers the REFUSE. */
ln_net_flow ln_net_transport_receive(ln_net_transport *transport, ln_net_stream *stream, size_t bound,
                                     linnet_error *error);
ln_net_flow ln_net_transport_send(ln_net_transport *transport, ln_net_stream *stream, size_t bound,
                                  linnet_error *error);
/* Reads at most `bound` bytes and forgets them. */
ln_net_flow ln_net_transport_discard(ln_net_transport *transport, size_t bound);
/* Tells whether the connection is established, including its TLS handshake. */
bool ln_net_transport_open(const ln_net_transport *transport);
/* Returns the bytes received and sent so far. */
void ln_net_transport_counts(const ln_net_transport *transport, uint64_t *received, uint64_t *sent);

#endif
