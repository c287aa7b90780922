/* transport_listen.h - listens at an address, and accepts connections. */
#ifndef LN_NET_TRANSPORT_LISTEN_H
#define LN_NET_TRANSPORT_LISTEN_H

#include "net/transport.h"

/* Listens at an address (transport.h). `security` may be NULL, and must otherwise outlive the listener and its
 * connections. Without `security`, only loopback, unix and shm addresses are allowed, unless `insecure` is set. A
 * socket file that a dead process left at the path is replaced; any other file at the path is an error. On an error,
 * *out is NULL. Errors: INVALID_ARGUMENT, NOT_AUTHENTICATED (security is needed), UNREACHABLE, UNSUPPORTED (shm outside
 * Linux), OUT_OF_MEMORY. */
linnet_status ln_net_listen(const char *address, const ln_net_security *security, bool insecure, ln_net_listener **out,
                            linnet_error *error);
/* Returns the descriptor to poll for LN_NET_READ; call ln_net_accept when it is ready. */
int ln_net_listener_fd(const ln_net_listener *listener);
/* Returns the address, with the port that the system chose if port 0 was given. */
const char *ln_net_listener_address(const ln_net_listener *listener);
/* Accepts a connection that waits. Returns LINNET_OK with *out NULL if no connection waits. After an error the listener
 * still works, because an error concerns only the connection that was to be accepted. */
linnet_status ln_net_accept(ln_net_listener *listener, ln_net_transport **out, linnet_error *error);
/* Stops listening, and removes the listener's socket file. Accepted connections stay open. NULL does nothing. */
void ln_net_listener_free(ln_net_listener *listener);

#endif
