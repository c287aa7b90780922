/* transport_medium.h - the types that TCP and Unix sockets, shared memory and TLS share: a connection, and a medium,
 * which is a way to move its bytes. A medium may run over another medium, as TLS does. A connection goes through stages
 * until it is open: connecting, handing over shared memory, the TLS handshake. */
#ifndef LN_NET_TRANSPORT_MEDIUM_H
#define LN_NET_TRANSPORT_MEDIUM_H

#include "net/error.h"
#include "net/transport.h"

/* Results of `read` and `write` that are not a number of bytes. Only LN_NET_FAILED fills the error record. */
enum { LN_NET_WOULD_BLOCK = 0, LN_NET_END_OF_FILE = -1, LN_NET_FAILED = -2 };
enum { LN_NET_SLICES = 16 }; /* most slices that `write` takes */

/* The functions of a medium. */
typedef struct ln_net_medium {
    /* Moves at most the given bytes without waiting. Returns the number of moved bytes, or one of the results above. */
    long (*read)(ln_net_transport *transport, void *data, size_t size, linnet_error *error);
    long (*write)(ln_net_transport *transport, const ln_net_slice *slices, int count, linnet_error *error);
    /* Closes the connection and frees what the medium has allocated, but not the transport. */
    void (*close)(ln_net_transport *transport);
    /* True if poll sees all bytes that can be read and all space that can be written. A result that is smaller than the
     * request then means that nothing more can be moved now. False for TLS and shared memory, which buffer bytes. */
    bool level;
    /* Announces before a wait that the peer must still send `size` bytes. The medium may then let poll wait until many
     * of these bytes have arrived or the connection ends. NULL: the medium cannot do this. */
    void (*expect)(ln_net_transport *transport, size_t size);
} ln_net_medium;

/* One stage of opening a connection. Returns LN_NET_FLOWS when the stage is done; ln_net_transport.stage is then the
 * next stage, or NULL. Returns LN_NET_BLOCKED if it must be called again when an event of stage_needs has come. */
typedef ln_net_flow (*ln_net_stage)(ln_net_transport *transport, linnet_error *error);

struct ln_net_transport {
    const ln_net_medium *medium;              /* the medium that carries the stream's bytes */
    const ln_net_medium *under;               /* the medium below TLS; NULL without TLS */
    ln_net_stage stage;                       /* NULL: the connection is open */
    int fd;                                   /* the socket, also for shared memory; -1: none yet */
    int stage_needs, read_needs, write_needs; /* events (LN_NET_READ, LN_NET_WRITE) to wait for when a stage,
                                                 a read or a write has blocked */
    bool read_blocked, write_blocked;         /* the last read or write returned LN_NET_WOULD_BLOCK */
    int low_water; /* poll reports the socket as readable when this many bytes have arrived; 0: the socket has no such
                      option */
    bool more;     /* more bytes will be written at once, so TCP may keep back a segment that is not full */
    bool server;   /* this side accepted the connection */
    struct addrinfo *addresses, *next; /* while connecting: the list to free, and the address to try now */
    struct ln_net_shm *shm;            /* NULL: no shared memory */
    struct ln_net_tls *tls;            /* NULL: no TLS, or its handshake has not begun */
    const ln_net_security *security;   /* NULL: no TLS */
    uint64_t received, sent;           /* bytes of the stream */
    char peer[160];                    /* description of the peer, for messages */
    char host[256];                    /* host of the address to which this side connects; "": none */
};

#endif
