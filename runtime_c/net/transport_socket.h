/* transport_socket.h - TCP and Unix sockets as a medium. */
#ifndef LN_NET_TRANSPORT_SOCKET_H
#define LN_NET_TRANSPORT_SOCKET_H

#include "net/transport_medium.h"

extern const ln_net_medium ln_net_socket_medium;

/* Makes `fd` non-blocking and close-on-exec. On an error, returns false and sets errno. */
bool ln_net_unblock(int fd);
/* Creates a transport over a socket, which may still be connecting, and takes ownership of `fd`. `fd` is -1 if there is
 * no socket yet. Returns NULL if out of memory; `fd` then still belongs to the caller. */
ln_net_transport *ln_net_transport_new(int fd, const ln_net_security *security, bool server);
/* Sets the options of a socket: TCP sends small segments at once, and a broken pipe causes no signal. */
void ln_net_tune(int fd, int family);
/* Frees the addresses that are left to try. */
void ln_net_forget_addresses(ln_net_transport *transport);

#endif
