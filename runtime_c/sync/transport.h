/* transport.h - byte streams between processes: TCP, Unix sockets, shared memory, each perhaps inside TLS.
 * Non-blocking, driven by the owner's poll or epoll loop; the protocol above knows none of the differences. */
#ifndef LN_SYNC_TRANSPORT_H
#define LN_SYNC_TRANSPORT_H

#include "sync/stream.h"

#include "linnet.h"

typedef struct ln_sync_transport ln_sync_transport; /* one connection */
typedef struct ln_sync_listener ln_sync_listener;
typedef struct ln_sync_security ln_sync_security; /* keys and certificates, shared by connections; NULL: none */

/* Addresses: "host:port", "[::1]:port", ":port" (loopback), "unix:PATH", "shm:PATH" (a Unix socket that hands over
 * shared memory). */

typedef struct ln_sync_security_config {
    const char *key_file;    /* pre-shared key: at least 32 bytes as hex or raw, mode 0600 or less, of our user */
    const char *certificate; /* PEM: own chain, own key, whom we trust; both sides are verified */
    const char *private_key;
    const char *authority;
    const char *libssl; /* NULL: the system's; a path for tests */
} ln_sync_security_config;

linnet_status ln_sync_security_create(const ln_sync_security_config *config, ln_sync_security **out,
                                      linnet_error *error);
void ln_sync_security_free(ln_sync_security *security);

/* Listens. Without security an address that is not loopback, unix or shm is refused, unless insecure. */
linnet_status ln_sync_listen(const char *address, const ln_sync_security *security, bool insecure,
                             ln_sync_listener **out, linnet_error *error);
int ln_sync_listener_fd(const ln_sync_listener *listener);
const char *ln_sync_listener_address(const ln_sync_listener *listener); /* with the port that the system chose */
/* Takes a connection that waits. LINNET_OK with *out NULL: none waits. */
linnet_status ln_sync_accept(ln_sync_listener *listener, ln_sync_transport **out, linnet_error *error);
void ln_sync_listener_free(ln_sync_listener *listener);

/* Begins to connect; use goes on when the fd is ready as ln_sync_transport_wants says. */
linnet_status ln_sync_connect(const char *address, const ln_sync_security *security, bool insecure,
                              ln_sync_transport **out, linnet_error *error);
void ln_sync_transport_free(ln_sync_transport *transport);
int ln_sync_transport_fd(const ln_sync_transport *transport);
/* Who is there, for people. */
const char *ln_sync_transport_peer(const ln_sync_transport *transport);
enum { LN_SYNC_READ = 1, LN_SYNC_WRITE = 2 };
/* What to poll the fd for besides what the stream wants: while connecting, in a TLS handshake, when shared memory is
 * full. */
int ln_sync_transport_wants(const ln_sync_transport *transport, const ln_sync_stream *stream);

typedef enum ln_sync_flow { LN_SYNC_FLOWS, LN_SYNC_BLOCKED, LN_SYNC_ENDED, LN_SYNC_BROKEN } ln_sync_flow;
/* Moves bytes from the transport into the stream (its handler runs) and from the stream into the transport, until it
 * would block, a bound of bytes is reached (so that one peer cannot hold up others), or it ends. `error` says why it is
 * BROKEN. */
ln_sync_flow ln_sync_transport_receive(ln_sync_transport *transport, ln_sync_stream *stream, size_t bound,
                                       linnet_error *error);
ln_sync_flow ln_sync_transport_send(ln_sync_transport *transport, ln_sync_stream *stream, size_t bound,
                                    linnet_error *error);
/* Bytes so far, both ways. */
void ln_sync_transport_counts(const ln_sync_transport *transport, uint64_t *received, uint64_t *sent);

#endif
