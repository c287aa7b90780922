/* transport_security.c - keys and certificates. TLS follows in its own commit; until then asking for it is an error. */
#include "sync/transport_medium.h"

linnet_status ln_sync_security_create(const ln_sync_security_config *config, ln_sync_security **out,
                                      linnet_error *error) {
    (void)config;
    *out = NULL;
    return ln_sync_fail(error, LINNET_UNSUPPORTED, "TLS is not built in yet");
}
void ln_sync_security_free(ln_sync_security *security) { (void)security; }
ln_sync_flow ln_sync_tls_shake(ln_sync_transport *transport, linnet_error *error) {
    (void)transport;
    ln_sync_fail(error, LINNET_UNSUPPORTED, "TLS is not built in yet");
    return LN_SYNC_BROKEN;
}
