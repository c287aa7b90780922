/* host_peer.h - other hosts from which a host fetches values for a client, so that they need not travel through it. */
#ifndef LN_REMOTE_HOST_PEER_H
#define LN_REMOTE_HOST_PEER_H

#include "remote/host_state.h"

/* What PEER says. */
typedef struct host_peer_place {
    uint64_t id;
    const unsigned char *token;
    const char *address; /* `bytes` bytes */
    uint64_t bytes;
    uint32_t lease_ms; /* how long the peer may say nothing while a value is awaited; 0: as long as it likes */
} host_peer_place;

/* What FETCH says: a value of the peer, and where it belongs. */
typedef struct host_fetch {
    uint64_t peer, connection, channel, number;
    uint64_t buffer, offset, bytes;
} host_fetch;

/* Connects to another host, which must know the client by the token. */
linnet_status ln_host_peer(host_connection *connection, const host_peer_place *place, linnet_error *error);
linnet_status ln_host_fetch(host_connection *connection, const host_fetch *fetch, linnet_error *error);
/* Ends the connections to other hosts. */
void ln_host_peers_free(host_connection *connection);

#endif
