/* transport_socket.h - TCP and Unix sockets as a medium. */
#ifndef LN_NET_TRANSPORT_SOCKET_H
#define LN_NET_TRANSPORT_SOCKET_H

#include "net/transport_medium.h"

extern const ln_net_medium ln_net_socket_medium;

/* Makes fd non-blocking and close-on-exec. Returns false with errno set. */
bool ln_net_unblock(int fd);
/* Creates a transport over a connected or connecting socket, and takes ownership of fd. Returns NULL if out of
 * memory. */
ln_net_transport *ln_net_transport_new(int fd, const ln_net_security *security, bool server);
/* Sets the options of a socket that is about to be connected. */
void ln_net_tune(int fd, int family);
void ln_net_forget_addresses(ln_net_transport *transport);

#endif
