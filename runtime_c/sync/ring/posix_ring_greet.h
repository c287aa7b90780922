/* posix_ring_greet.h - the frames by which two ranks meet. */
#ifndef LN_SYNC_POSIX_RING_GREET_H
#define LN_SYNC_POSIX_RING_GREET_H

#include "sync/ring/posix_ring_state.h"

/* Takes ownership of `transport`. `transport` may be NULL, after an error. Returns NULL if out of memory. */
ring_link *ln_sync_ring_link_new(linnet_ring *ring, ln_net_transport *transport, bool accepted);
void ln_sync_ring_say_hello(ring_link *link, ln_sync_ring_purpose purpose);
void ln_sync_ring_welcome(ring_link *link, int rank);
ln_net_refusal ln_sync_ring_refuse(ring_link *link, ln_net_refusal why, const char *text);
/* Addresses are sent as text. The second tells whether all of the peer's text has come. */
void ln_sync_ring_send_text(ring_link *link, const char *text);
bool ln_sync_ring_has_text(const ring_link *link);

#endif
