/* posix_ring.h - what posix_ring.c and posix_ring_meet.c share: a ring's connections, and how to wait for them.
 * Two connections to each rank: from the left neighbour and to the right one. Bytes of arrays flow to the right. */
#ifndef LN_SYNC_POSIX_RING_H
#define LN_SYNC_POSIX_RING_H

#include "sync/ring_core.h"
#include "sync/transport.h"

/* A connection. Until it is `open` its frames are those of the meeting; then they are the ring's. */
typedef struct ring_link {
    linnet_ring *ring;
    ln_sync_transport *transport;
    ln_sync_stream *stream;
    ln_sync_flow flow; /* ENDED or BROKEN: it is of no use any more, `error` says why */
    linnet_error error;
    int rank;       /* of the peer, as it says; -1: unknown yet */
    uint64_t since; /* ms */
    bool meets;     /* one of the meeting, between rank 0 and another */
    bool accepted, open;
    bool greeted; /* the peer has said hello as our neighbour, in the ring `claim` */
    uint64_t claim;
    char *text; /* addresses: what came, and what goes out */
    uint64_t text_size, text_came;
    bool told; /* the peer has refused, and `error` is what it said */
} ring_link;

struct linnet_ring {
    ln_sync_ring core;
    ln_sync_handler handler; /* core's */
    ln_sync_security *security;
    bool insecure;
    uint32_t chunk;
    int timeout_ms;
    uint64_t id; /* of this ring, chosen by rank 0: in all headers */
    ring_link *left, *right;
    linnet_error broken; /* code 0: it is whole */
};

uint64_t ln_sync_ring_clock(void); /* ms */
/* Takes transport, which may be NULL (as after an error). NULL: no memory. */
ring_link *ln_sync_ring_link_new(linnet_ring *ring, ln_sync_transport *transport, bool accepted);
void ln_sync_ring_link_free(ring_link *link);
/* Waits at most wait_ms for any of the links or listeners (which may be NULL), then moves bytes on all links. */
void ln_sync_ring_turn(ring_link *const *links, int count, ln_sync_listener *const *listeners, int listener_count,
                       int wait_ms);
/* Sets left and right, from config.address; at most timeout_ms. */
linnet_status ln_sync_ring_meet(linnet_ring *ring, const linnet_ring_config *config, linnet_error *error);
/* The meeting's part of a link's handler. */
ln_sync_refusal ln_sync_ring_meet_place(ring_link *link, const ln_sync_header *header, void **destination);
ln_sync_refusal ln_sync_ring_meet_frame(ring_link *link, const ln_sync_header *header, const void *payload);

#endif
