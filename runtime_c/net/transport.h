/* transport.h - byte streams between processes: TCP, Unix sockets and shared memory, each with or without TLS. Nothing
 * blocks; the owner's poll or epoll loop moves the bytes. The protocol is the same over all of them. Order of calls:
 * ln_net_security_create, then ln_net_listen and ln_net_accept, or ln_net_connect; then ln_net_transport_receive and
 * ln_net_transport_send in a loop; at last ln_net_transport_free. */
#ifndef LN_NET_TRANSPORT_H
#define LN_NET_TRANSPORT_H

#include "net/handler.h"

#include "linnet.h"

typedef struct ln_net_transport ln_net_transport; /* one connection */
typedef struct ln_net_listener ln_net_listener;   /* accepts connections at one address */
typedef struct ln_net_security ln_net_security;   /* keys and certificates, which connections share; NULL: no TLS */

/* An address is "host:port", "[::1]:port", ":port" (127.0.0.1), "*:port" (listens on all IPv4 interfaces), "unix:PATH",
 * or "shm:PATH" (a Unix socket that hands over shared memory; Linux only). With port 0, the system chooses the port to
 * listen on. Socket files have mode 0600. Without TLS, a client connects to a socket file only if the server's process
 * belongs to the same user or to root. */

typedef struct ln_net_security_config {
    /* Set either a pre-shared key or certificates; all other pointers may be NULL. The key has 32 to 256 bytes, in hex
     * digits or raw. Its file must belong to our user or root, and nobody else may be able to read it. */
    const char *key_file;
    /* Certificates (PEM): our own chain, our private key (the rules for its file are the same), and the authority that
     * we trust. Both sides are verified. */
    const char *certificate;
    const char *private_key;
    const char *authority;
    /* With a key: a name of the key, the same on both sides, such as the job's name. NULL: "linnet". */
    const char *identity;
    const char *server_name; /* with certificates, for the side that connects: the DNS name or IP address that the
                                server's certificate must contain; NULL: the host of the address, or localhost if the
                                address has no host */
    const char *libssl;      /* path of OpenSSL's libssl; NULL: the system's OpenSSL, 3 or 1.1.1 */
} ln_net_security_config;

/* The results of ln_net_transport_wants (transport_flow.h): the events to poll the descriptor for. They also hold while
 * the transport connects, during a TLS handshake, and when shared memory is full. When one of the events has come, call
 * receive, then send: TLS may have to read in order to write, and shared memory has only one doorbell. LN_NET_NOW means
 * that there are bytes or space that poll cannot see. In this case poll with a timeout of 0, so that other connections
 * get their turn, then call receive and send even if no event has come. */
enum { LN_NET_READ = 1, LN_NET_WRITE = 2, LN_NET_NOW = 4 };

/* Why receive or send stopped. The owner frees the transport after LN_NET_ENDED and after LN_NET_BROKEN, unless REFUSE
 * is still to be sent. */
typedef enum ln_net_flow {
    LN_NET_FLOWS,   /* receive: the bound was reached; send: the bound was reached, or everything is sent */
    LN_NET_BLOCKED, /* wait as ln_net_transport_wants says; receive also returns this if the stream has no space */
    LN_NET_ENDED,   /* the peer closed the connection, or hung up while the stream has no space */
    LN_NET_BROKEN   /* the connection failed, and `error` says why */
} ln_net_flow;
/* A bound for one call of receive or send: enough bytes to be efficient, few enough to be fair to other connections. */
enum { LN_NET_TURN = 1 << 20 };

#endif
