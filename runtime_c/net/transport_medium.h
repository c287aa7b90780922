/* transport_medium.h - shared by TCP and Unix sockets, shared memory and TLS: a connection, and how bytes move over it.
 * A medium may run over another medium, as TLS does. A connection goes through stages until it is open. */
#ifndef LN_NET_TRANSPORT_MEDIUM_H
#define LN_NET_TRANSPORT_MEDIUM_H

#include "net/error.h"
#include "net/transport.h"

/* Results of reading and writing that are not a number of bytes. */
enum { LN_NET_WOULD_BLOCK = 0, LN_NET_END_OF_FILE = -1, LN_NET_FAILED = -2 };
enum { LN_NET_SLICES = 16 };

typedef struct ln_net_medium {
    long (*read)(ln_net_transport *transport, void *data, size_t size, linnet_error *error);
    long (*write)(ln_net_transport *transport, const ln_net_slice *slices, int count, linnet_error *error);
    void (*close)(ln_net_transport *transport);
    /* true: poll sees everything that can be read or written, and a result smaller than the request means that nothing
     * more can be moved now. */
    bool level;
    /* Announces before a wait that `size` bytes are sure to come. Poll may then wait until all of them have arrived or
     * the connection ends. NULL: the medium cannot do this. */
    void (*expect)(ln_net_transport *transport, size_t size);
} ln_net_medium;

/* One stage of opening. Returns FLOWS when it is done (ln_net_transport.stage is then the next stage, or NULL), or
 * BLOCKED until stage_needs is ready. */
typedef ln_net_flow (*ln_net_stage)(ln_net_transport *transport, linnet_error *error);

struct ln_net_transport {
    const ln_net_medium *medium; /* the medium that carries the stream's bytes */
    const ln_net_medium *under;  /* the medium below TLS */
    ln_net_stage stage;          /* NULL: the connection is open */
    int fd;
    int stage_needs, read_needs, write_needs; /* LN_NET_READ, LN_NET_WRITE: events that end a block */
    bool read_blocked, write_blocked;
    int low_water; /* the socket counts as readable when this many bytes have arrived; 0: cannot be set */
    bool more;     /* more bytes follow at once, so a segment that is not full may wait for them */
    bool server;
    struct addrinfo *addresses, *next; /* addresses to try while connecting */
    struct ln_net_shm *shm;
    struct ln_net_tls *tls;
    const ln_net_security *security;
    uint64_t received, sent;
    char peer[160];
    char host[256]; /* host of the address to which this side connects; "": none */
};

#endif
