/* transport_listen.h - listens at an address, and accepts connections. */
#ifndef LN_NET_TRANSPORT_LISTEN_H
#define LN_NET_TRANSPORT_LISTEN_H

#include "net/transport.h"

/* Listens at an address. Without security, only loopback, unix and shm addresses are allowed, unless `insecure` is
 * set. */
linnet_status ln_net_listen(const char *address, const ln_net_security *security, bool insecure, ln_net_listener **out,
                            linnet_error *error);
int ln_net_listener_fd(const ln_net_listener *listener);
const char *ln_net_listener_address(const ln_net_listener *listener); /* with the port that the system chose */
/* Accepts a waiting connection. Returns LINNET_OK with *out NULL if no connection waits. An error concerns only the
 * connection that was to be accepted. */
linnet_status ln_net_accept(ln_net_listener *listener, ln_net_transport **out, linnet_error *error);
void ln_net_listener_free(ln_net_listener *listener);

#endif
