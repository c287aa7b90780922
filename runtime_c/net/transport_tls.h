/* transport_tls.h - TLS over a socket or over shared memory. */
#ifndef LN_NET_TRANSPORT_TLS_H
#define LN_NET_TRANSPORT_TLS_H

#include "net/transport_medium.h"
#include "net/transport_security_state.h"

extern const ln_net_medium ln_net_tls_medium;

/* Callbacks by which OpenSSL asks for the pre-shared key: the first on the client, the second on the server. */
ln_net_use_psk ln_net_tls_use_psk;
ln_net_find_psk ln_net_tls_find_psk;

/* Sets the stage that follows when the socket is connected and shared memory is handed over: the TLS handshake, or none
 * if the transport has no security. The connection is then open. */
void ln_net_stage_security(ln_net_transport *transport);

#endif
