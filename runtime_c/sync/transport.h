/* transport.h - byte streams between processes: TCP, Unix sockets, shared memory, each perhaps inside TLS.
 * Non-blocking, driven by the owner's poll or epoll loop; the protocol above knows none of the differences. */
#ifndef LN_SYNC_TRANSPORT_H
#define LN_SYNC_TRANSPORT_H

#include "sync/stream.h"

#include "linnet.h"

typedef struct ln_sync_transport ln_sync_transport; /* one connection */
typedef struct ln_sync_listener ln_sync_listener;
typedef struct ln_sync_security ln_sync_security; /* keys and certificates, shared by connections; NULL: none */

/* Addresses: "host:port", "[::1]:port", ":port" (127.0.0.1), "*:port" (to listen on all), "unix:PATH", "shm:PATH" (a
 * Unix socket that hands over shared memory; Linux). Port 0 listens on one that the system picks. Sockets that are
 * files are made with mode 0600, and only processes of one user (or root) talk over them. */

typedef struct ln_sync_security_config {
    /* Either a pre-shared key: 32 to 256 bytes, as hex digits or as they are, in a file of our user (or root) that
     * nobody else may read. */
    const char *key_file;
    /* Or certificates (PEM): our own chain, our private key (a file as above), and whose signature we trust. Both sides
     * are verified. */
    const char *certificate;
    const char *private_key;
    const char *authority;
    const char *identity;    /* with a key: who shares it, a name of the job; NULL: "linnet" */
    const char *server_name; /* with certificates, of who connects: the DNS name or IP address that the server's must
                                carry; NULL: the host of the address, localhost where that has none */
    const char *libssl;      /* NULL: the system's OpenSSL, 3 or 1.1.1 */
} ln_sync_security_config;

/* Keys and certificates are read here. It must live longer than the connections and listeners that use it. */
linnet_status ln_sync_security_create(const ln_sync_security_config *config, ln_sync_security **out,
                                      linnet_error *error);
void ln_sync_security_free(ln_sync_security *security);

/* Listens. Without security an address that is not loopback, unix or shm is refused, unless insecure. */
linnet_status ln_sync_listen(const char *address, const ln_sync_security *security, bool insecure,
                             ln_sync_listener **out, linnet_error *error);
int ln_sync_listener_fd(const ln_sync_listener *listener);
const char *ln_sync_listener_address(const ln_sync_listener *listener); /* with the port that the system chose */
/* Takes a connection that waits. LINNET_OK with *out NULL: none waits. An error concerns that connection alone. */
linnet_status ln_sync_accept(ln_sync_listener *listener, ln_sync_transport **out, linnet_error *error);
void ln_sync_listener_free(ln_sync_listener *listener);

/* Begins to connect (names are looked up at once); it goes on in receive and send. */
linnet_status ln_sync_connect(const char *address, const ln_sync_security *security, bool insecure,
                              ln_sync_transport **out, linnet_error *error);
/* Closes. What was sent before still arrives. */
void ln_sync_transport_free(ln_sync_transport *transport);
int ln_sync_transport_fd(const ln_sync_transport *transport); /* the same number as long as the transport lives */
/* Who is there, for people. */
const char *ln_sync_transport_peer(const ln_sync_transport *transport);

/* All to poll the fd for (level-triggered), also while connecting, in a TLS handshake, or when shared memory is full.
 * When it is ready for either, call receive, then send: TLS may have to read in order to write, and shared memory has
 * one doorbell. LN_SYNC_NOW: bytes or room are there already that poll cannot see; call both without waiting (poll with
 * a timeout of 0, so that the others have their turn). Ask after each round of receive and send, and after something
 * was queued in the stream or it was unpaused. */
enum { LN_SYNC_READ = 1, LN_SYNC_WRITE = 2, LN_SYNC_NOW = 4 };
int ln_sync_transport_wants(const ln_sync_transport *transport, ln_sync_stream *stream);

typedef enum ln_sync_flow {
    LN_SYNC_FLOWS,   /* receive: the bound was reached; send: it was reached, or all is sent */
    LN_SYNC_BLOCKED, /* wait as ln_sync_transport_wants says (receive: also when the stream has no space) */
    LN_SYNC_ENDED,   /* the peer closed the connection (or hung up, while the stream has no space) */
    LN_SYNC_BROKEN   /* and `error` says why */
} ln_sync_flow;
/* A fair bound of one turn. */
enum { LN_SYNC_TURN = 1 << 20 };
/* Moves bytes from the transport into the stream (its handler runs, and must not free either) and from the stream into
 * the transport, until it would block, `bound` bytes are reached (so that one peer cannot hold up others), or it ends.
 * When the stream refuses what came, receive is BROKEN (LINNET_PROTOCOL_ERROR); send then still delivers its REFUSE. */
ln_sync_flow ln_sync_transport_receive(ln_sync_transport *transport, ln_sync_stream *stream, size_t bound,
                                       linnet_error *error);
ln_sync_flow ln_sync_transport_send(ln_sync_transport *transport, ln_sync_stream *stream, size_t bound,
                                    linnet_error *error);
/* The connection is made, with its TLS handshake. */
bool ln_sync_transport_open(const ln_sync_transport *transport);
/* Bytes so far, both ways. */
void ln_sync_transport_counts(const ln_sync_transport *transport, uint64_t *received, uint64_t *sent);

#endif
