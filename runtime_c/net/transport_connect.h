/* transport_connect.h - begins a connection to an address. */
#ifndef LN_NET_TRANSPORT_CONNECT_H
#define LN_NET_TRANSPORT_CONNECT_H

#include "net/transport.h"

/* Begins to connect. Host names are resolved at once; ln_net_transport_receive and _send do the rest. */
linnet_status ln_net_connect(const char *address, const ln_net_security *security, bool insecure,
                             ln_net_transport **out, linnet_error *error);

#endif
