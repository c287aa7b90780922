/* posix_ring_meet.h - connects the ranks of a ring. */
#ifndef LN_SYNC_POSIX_RING_MEET_H
#define LN_SYNC_POSIX_RING_MEET_H

#include "sync/ring/posix_ring_state.h"

/* posix_ring_meet.c: connects `left` and `right` through the meeting at config.address, within timeout_ms. */
linnet_status ln_sync_ring_meet(linnet_ring *ring, const linnet_ring_config *config, linnet_error *error);

#endif
