/* transport_security.h - reads keys and certificates. */
#ifndef LN_NET_TRANSPORT_SECURITY_H
#define LN_NET_TRANSPORT_SECURITY_H

#include "net/transport.h"

/* Loads OpenSSL, and reads the key or the certificates that the config names. *out must outlive the connections and
 * listeners that use it. On an error, *out is NULL. */
linnet_status ln_net_security_create(const ln_net_security_config *config, ln_net_security **out, linnet_error *error);
/* Wipes the key and frees everything. NULL does nothing. */
void ln_net_security_free(ln_net_security *security);

#endif
