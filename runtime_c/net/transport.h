/* transport.h - byte streams between processes: TCP, Unix sockets and shared memory, each with or without TLS.
 * Non-blocking, driven by the owner's poll or epoll loop. The protocol is the same over all of them. */
#ifndef LN_NET_TRANSPORT_H
#define LN_NET_TRANSPORT_H

#include "net/handler.h"

#include "linnet.h"

typedef struct ln_net_transport ln_net_transport; /* one connection */
typedef struct ln_net_listener ln_net_listener;
typedef struct ln_net_security ln_net_security; /* keys and certificates, shared by connections; NULL: none */

/* Addresses: "host:port", "[::1]:port", ":port" (127.0.0.1), "*:port" (listens on all interfaces), "unix:PATH",
 * "shm:PATH" (a Unix socket that hands over shared memory; Linux only). Port 0 listens on a port that the system
 * chooses. Socket files have mode 0600, and only processes of one user (or root) talk over them. */

typedef struct ln_net_security_config {
    /* Set either a pre-shared key or certificates. The key has 32 to 256 bytes, in hex digits or raw. Its file must
     * belong to our user or root, and nobody else may be able to read it. */
    const char *key_file;
    /* Certificates (PEM): our own chain, our private key (the rules for its file are the same), and the authority that
     * we trust. Both sides are verified. */
    const char *certificate;
    const char *private_key;
    const char *authority;
    const char *identity;    /* with a key: a name for those who share it, such as the job's; NULL: "linnet" */
    const char *server_name; /* with certificates, for the connecting side: the DNS name or IP address that the server's
                                certificate must contain; NULL: the host of the address, or localhost if the address has
                                no host */
    const char *libssl;      /* NULL: the system's OpenSSL, 3 or 1.1.1 */
} ln_net_security_config;

/* Returns the events to poll the fd for (level-triggered); this also works while connecting, in a TLS handshake, or
 * when shared memory is full. When any of them is ready, call receive, then send: TLS may have to read in order to
 * write, and shared memory has only one doorbell. LN_NET_NOW means that there are bytes or space which poll cannot
 * see. Then call both without waiting; poll with a timeout of 0, so that other connections get their turn. Ask again
 * after each round of receive and send, after queueing something in the stream, and after unpausing it. */
enum { LN_NET_READ = 1, LN_NET_WRITE = 2, LN_NET_NOW = 4 };

typedef enum ln_net_flow {
    LN_NET_FLOWS,   /* receive: the bound was reached; send: the bound was reached, or everything is sent */
    LN_NET_BLOCKED, /* wait as ln_net_transport_wants says; also returned by receive if the stream has no space */
    LN_NET_ENDED,   /* the peer closed the connection, or hung up while the stream has no space */
    LN_NET_BROKEN   /* the connection failed, and `error` says why */
} ln_net_flow;
/* A fair number of bytes for one turn. */
enum { LN_NET_TURN = 1 << 20 };

#endif
