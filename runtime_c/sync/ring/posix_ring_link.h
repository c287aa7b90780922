/* posix_ring_link.h - moves the bytes of a ring's connections, and waits for them. */
#ifndef LN_SYNC_POSIX_RING_LINK_H
#define LN_SYNC_POSIX_RING_LINK_H

#include "sync/ring/posix_ring_state.h"

/* posix_ring_link.c */
uint64_t ln_sync_ring_clock(void); /* ms */
void ln_sync_ring_link_free(ring_link *link);
bool ln_sync_ring_over(ln_net_flow flow);
/* Waits at most wait_ms for any of the links or listeners (which may be NULL), then moves bytes on all links. */
void ln_sync_ring_turn(ring_link *const *links, int count, ln_net_listener *const *listeners, int listener_count,
                       int wait_ms);

#endif
