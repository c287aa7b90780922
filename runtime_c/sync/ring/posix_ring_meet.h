/* posix_ring_meet.h - connects the ranks of a ring. */
#ifndef LN_SYNC_POSIX_RING_MEET_H
#define LN_SYNC_POSIX_RING_MEET_H

#include "sync/ring/posix_ring_state.h"

/* Connects ring->left and ring->right: all ranks meet at config->address, where rank 0 listens. Blocks for at most
 * timeout_ms, or about a second longer on ranks other than 0. On an error, ring->left and ring->right are unchanged. */
linnet_status ln_sync_ring_meet(linnet_ring *ring, const linnet_ring_config *config, linnet_error *error);

#endif
