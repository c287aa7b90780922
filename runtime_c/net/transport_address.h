/* transport_address.h - the parts of an address, and the socket addresses of a host. */
#ifndef LN_NET_TRANSPORT_ADDRESS_H
#define LN_NET_TRANSPORT_ADDRESS_H

#include "net/transport_medium.h"

/* The parts of an address. `path` is empty for TCP; `host` and `port` are empty for Unix sockets and shared memory. */
typedef struct ln_net_address {
    enum { LN_NET_TCP, LN_NET_UNIX, LN_NET_SHM } kind;
    char host[256]; /* "": loopback; "*": all interfaces */
    char port[8];
    char path[108];
} ln_net_address;

/* Splits an address into its parts. Errors: INVALID_ARGUMENT, if the text is not an address or a part is too long.
 * *address is changed in any case. */
linnet_status ln_net_address_parse(const char *text, ln_net_address *address, linnet_error *error);
/* Looks up the socket addresses of a host and port; this may wait for a name server. The caller frees *out with
 * freeaddrinfo. `listening`: the addresses are for a listener. `guarded`: all addresses are allowed, because the
 * connection has TLS or the user permits insecure connections; otherwise only loopback addresses are allowed. Errors:
 * UNREACHABLE (the name is not known), NOT_AUTHENTICATED (an address is not loopback). */
struct addrinfo;
linnet_status ln_net_address_resolve(const ln_net_address *address, bool listening, bool guarded, struct addrinfo **out,
                                     linnet_error *error);
/* Returns the text of an errno, such as "Connection refused". The function is thread-safe and may write the text to
 * `text`, which has `size` bytes. */
const char *ln_net_errno(int code, char *text, size_t size);

#endif
