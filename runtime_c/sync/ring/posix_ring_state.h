/* posix_ring_state.h - the types that the files posix_ring*.c share: a ring and its connections. Each rank has two
 * connections: one from its left neighbour and one to its right neighbour. Bytes of arrays flow to the right. */
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
    uint64_t since; /* time in ms when the link was created */
    bool meets;     /* a link of the meeting, between rank 0 and another rank */
    /* accepted: the peer has connected to this rank; otherwise this rank has connected to the peer. */
    bool accepted, open;
    bool greeted; /* the peer has sent HELLO as our neighbour in the ring with the id `claim` */
    uint64_t claim;
    char *text;                    /* addresses, received or to be sent; NULL: none */
    uint64_t text_size, text_came; /* bytes of the text, and those that were received */
    bool told;                     /* the peer has refused us, and `error` has its reason */
} ring_link;

struct linnet_ring {
    ln_sync_ring core;
    ln_net_handler handler;    /* the core's handler, which gets the frames of open links */
    ln_net_security *security; /* NULL: no TLS */
    bool insecure;             /* addresses of other machines are allowed without TLS */
    uint32_t chunk;
    int timeout_ms;
    /* The ring's id. Rank 0 chooses it, and all headers carry it, so that frames of other rings are refused. */
    uint64_t id;
    ring_link *left, *right;
    linnet_error broken; /* code 0: the ring is not broken */
};

enum { LN_SYNC_RING_ADDRESS = 200 }; /* bytes of an address at most */

/* Why a rank connects: to meet rank 0, or to become the left neighbour of the peer. */
typedef enum ln_sync_ring_purpose { LN_SYNC_RING_TO_MEET, LN_SYNC_RING_AS_NEIGHBOUR } ln_sync_ring_purpose;

#endif
