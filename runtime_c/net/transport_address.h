/* transport_address.h - the parts of an address, and the socket addresses of a host. */
#ifndef LN_NET_TRANSPORT_ADDRESS_H
#define LN_NET_TRANSPORT_ADDRESS_H

#include "net/transport_medium.h"

/* The parts of an address. */
typedef struct ln_net_address {
    enum { LN_NET_TCP, LN_NET_UNIX, LN_NET_SHM } kind;
    char host[256]; /* "": loopback; "*": all */
    char port[8];
    char path[108];
} ln_net_address;

linnet_status ln_net_address_parse(const char *text, ln_net_address *address, linnet_error *error);
/* Returns the socket addresses of a host and port, to be freed with freeaddrinfo. Unless there is security or
 * `insecure` is set, they must be loopback. */
struct addrinfo;
linnet_status ln_net_address_resolve(const ln_net_address *address, bool listening, bool guarded, struct addrinfo **out,
                                     linnet_error *error);
/* Returns the text of an errno, such as "Connection refused". */
const char *ln_net_errno(int code, char *text, size_t size);

#endif
