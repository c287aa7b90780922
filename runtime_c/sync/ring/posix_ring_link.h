/* posix_ring_link.h - moves the bytes of a ring's connections, and waits for them. */
#ifndef LN_SYNC_POSIX_RING_LINK_H
#define LN_SYNC_POSIX_RING_LINK_H

#include "sync/ring/posix_ring_state.h"

/* Returns a monotonic time in milliseconds. */
uint64_t ln_sync_ring_clock(void);
/* Closes the connection and frees the link. NULL does nothing. */
void ln_sync_ring_link_free(ring_link *link);
/* Tells whether the connection has ended: `flow` is LN_NET_ENDED or LN_NET_BROKEN. */
bool ln_sync_ring_over(ln_net_flow flow);
/* Waits at most wait_ms until one of the links or listeners is ready, then moves bytes on all links. Entries of both
 * lists may be NULL. The results are in link->flow and link->error. */
void ln_sync_ring_turn(ring_link *const *links, int count, ln_net_listener *const *listeners, int listener_count,
                       int wait_ms);

#endif
