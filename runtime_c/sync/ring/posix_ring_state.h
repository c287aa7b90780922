/* posix_ring_state.h - shared by posix_ring*.c: a ring's connections, and how to wait for them. Each
 * rank has two connections: one from its left neighbour and one to its right neighbour. Bytes of arrays flow to the
 * right. */
#ifndef LN_SYNC_POSIX_RING_STATE_H
#define LN_SYNC_POSIX_RING_STATE_H

#include "net/transport.h"
#include "sync/ring/ring_core.h"

/* A connection. Until it is `open`, it carries frames of the meeting; afterwards it carries frames of the ring. */
typedef struct ring_link {
    linnet_ring *ring;
    ln_net_transport *transport;
    ln_net_stream *stream;
    ln_net_flow flow; /* ENDED or BROKEN: the link is closed, and `error` has the reason */
    linnet_error error;
    int rank;       /* rank that the peer claims; -1: not known yet */
    uint64_t since; /* ms */
    bool meets;     /* a link of the meeting, between rank 0 and another rank */
    bool accepted, open;
    bool greeted; /* the peer has said hello as our neighbour in the ring `claim` */
    uint64_t claim;
    char *text; /* addresses, received or to be sent */
    uint64_t text_size, text_came;
    bool told; /* the peer has refused us, and `error` has its reason */
} ring_link;

struct linnet_ring {
    ln_sync_ring core;
    ln_net_handler handler; /* the core's */
    ln_net_security *security;
    bool insecure;
    uint32_t chunk;
    int timeout_ms;
    uint64_t id; /* id of this ring, chosen by rank 0; part of all headers */
    ring_link *left, *right;
    linnet_error broken; /* code 0: the ring is not broken */
};

enum { LN_SYNC_RING_ADDRESS = 200 }; /* bytes of an address at most */

/* posix_ring_greet.c */
typedef enum ln_sync_ring_purpose { LN_SYNC_RING_TO_MEET, LN_SYNC_RING_AS_NEIGHBOUR } ln_sync_ring_purpose;

#endif
