/* posix_ring_greet.h - the frames by which two ranks meet. */
#ifndef LN_SYNC_POSIX_RING_GREET_H
#define LN_SYNC_POSIX_RING_GREET_H

#include "sync/ring/posix_ring_state.h"

/* Creates a link over `transport`, and takes ownership of `transport` even if it fails. If `transport` is NULL, because
 * it could not be created, the function returns NULL, as it does if out of memory. */
ring_link *ln_sync_ring_link_new(linnet_ring *ring, ln_net_transport *transport, bool accepted);
/* Queues HELLO, as the connecting side: to meet rank 0, or as the left neighbour of the peer. */
void ln_sync_ring_say_hello(ring_link *link, ln_sync_ring_purpose purpose);
/* Queues WELCOME, as the accepting side, and completes the handshake; `rank` is the rank of the peer. */
void ln_sync_ring_welcome(ring_link *link, int rank);
/* Refuses the peer and returns `why`, for a handler to return. */
ln_net_refusal ln_sync_ring_refuse(ring_link *link, ln_net_refusal why, const char *text);
/* Queues a copy of a text, which has the address of a rank or the table of all addresses. */
void ln_sync_ring_send_text(ring_link *link, const char *text);
/* Tells whether all of the peer's text has been received. link->text is then the text. */
bool ln_sync_ring_has_text(const ring_link *link);

#endif
