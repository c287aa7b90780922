/* transport_connect.h - begins a connection to an address. */
#ifndef LN_NET_TRANSPORT_CONNECT_H
#define LN_NET_TRANSPORT_CONNECT_H

#include "net/transport.h"

/* Begins to connect. The function looks up a host name at once, which may take a while. ln_net_transport_receive and
 * ln_net_transport_send then complete the connection and report errors of it. `security` may be NULL, and must
 * otherwise outlive the transport. Without `security`, only loopback, unix and shm addresses are allowed, unless
 * `insecure` is set. On an error, *out is NULL. */
linnet_status ln_net_connect(const char *address, const ln_net_security *security, bool insecure,
                             ln_net_transport **out, linnet_error *error);

#endif
