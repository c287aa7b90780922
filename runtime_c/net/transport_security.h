/* transport_security.h - reads keys and certificates. */
#ifndef LN_NET_TRANSPORT_SECURITY_H
#define LN_NET_TRANSPORT_SECURITY_H

#include "net/transport.h"

/* Reads keys and certificates. The result must outlive the connections and listeners that use it. */
linnet_status ln_net_security_create(const ln_net_security_config *config, ln_net_security **out, linnet_error *error);
void ln_net_security_free(ln_net_security *security);

#endif
