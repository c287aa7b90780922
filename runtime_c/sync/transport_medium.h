/* transport_medium.h - what TCP and Unix sockets, shared memory and TLS share: a connection, and how bytes move over
 * it. A medium may stand on another (TLS on any); a connection passes through stages until it is open. */
#ifndef LN_SYNC_TRANSPORT_MEDIUM_H
#define LN_SYNC_TRANSPORT_MEDIUM_H

/* accept4, memfd_create, SO_PEERCRED; this header is included first. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

#include "sync/error.h"
#include "sync/transport.h"

/* What reading and writing return besides a number of bytes. */
enum { LN_SYNC_WOULD_BLOCK = 0, LN_SYNC_END_OF_FILE = -1, LN_SYNC_FAILED = -2 };
enum { LN_SYNC_SLICES = 16 };

typedef struct ln_sync_medium {
    long (*read)(ln_sync_transport *transport, void *data, size_t size, linnet_error *error);
    long (*write)(ln_sync_transport *transport, const ln_sync_slice *slices, int count, linnet_error *error);
    void (*close)(ln_sync_transport *transport);
    /* poll sees all that is there to read and write, and less than was asked for means that no more is there. */
    bool level;
    /* Before it waits: so many bytes are sure to come, and poll may let them gather, unless the connection ends. NULL:
     * it cannot. */
    void (*expect)(ln_sync_transport *transport, size_t size);
} ln_sync_medium;

/* One stage of opening: FLOWS when it is done (and ln_sync_transport.stage is the next one, or NULL); BLOCKED until
 * stage_needs. */
typedef ln_sync_flow (*ln_sync_stage)(ln_sync_transport *transport, linnet_error *error);

struct ln_sync_transport {
    const ln_sync_medium *medium; /* what the stream's bytes pass through */
    const ln_sync_medium *under;  /* what TLS stands on */
    ln_sync_stage stage;          /* NULL: open */
    int fd;
    int stage_needs, read_needs, write_needs; /* LN_SYNC_READ, LN_SYNC_WRITE: what ends a block */
    bool read_blocked, write_blocked;
    int low_water; /* bytes from which on the socket is ready to read; 0: it has none to set */
    bool more;     /* bytes that follow are there: a segment that is not full may wait for them */
    bool server;
    struct addrinfo *addresses, *next; /* to try, while connecting */
    struct ln_sync_shm *shm;
    struct ln_sync_tls *tls;
    const ln_sync_security *security;
    uint64_t received, sent;
    char peer[160];
    char host[256]; /* of the address that was connected to; "": it has none */
};

/* An address as its parts. */
typedef struct ln_sync_address {
    enum { LN_SYNC_TCP, LN_SYNC_UNIX, LN_SYNC_SHM } kind;
    char host[256]; /* "": loopback; "*": all */
    char port[8];
    char path[108];
} ln_sync_address;

linnet_status ln_sync_address_parse(const char *text, ln_sync_address *address, linnet_error *error);
/* The socket addresses of a host and port, for freeaddrinfo; checked to be loopback unless there is security, or
 * insecure. */
struct addrinfo;
linnet_status ln_sync_address_resolve(const ln_sync_address *address, bool listening, bool guarded,
                                      struct addrinfo **out, linnet_error *error);
/* "Connection refused" */
const char *ln_sync_errno(int code, char *text, size_t size);

/* fd becomes non-blocking and closes on exec. False: errno says why. */
bool ln_sync_unblock(int fd);
/* A transport over a connected or connecting socket; takes fd. NULL: no memory. */
ln_sync_transport *ln_sync_transport_new(int fd, const ln_sync_security *security, bool server);

extern const ln_sync_medium ln_sync_socket_medium, ln_sync_shm_medium, ln_sync_tls_medium;

/* Sets the stage that follows when the socket is connected: handing over memory, or the TLS handshake, or none. */
void ln_sync_stage_after_socket(ln_sync_transport *transport, bool shared_memory);
/* Stages. Shared memory: the server gives it, the client takes it. */
ln_sync_flow ln_sync_shm_give(ln_sync_transport *transport, linnet_error *error);
ln_sync_flow ln_sync_shm_take(ln_sync_transport *transport, linnet_error *error);
ln_sync_flow ln_sync_tls_shake(ln_sync_transport *transport, linnet_error *error);

#endif
