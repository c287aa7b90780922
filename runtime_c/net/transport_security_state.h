/* transport_security_state.h - the TLS data that all connections of one side share: OpenSSL, its context, the key.
 * transport_security.c creates it, and transport_tls.c uses it. */
#ifndef LN_NET_TRANSPORT_SECURITY_STATE_H
#define LN_NET_TRANSPORT_SECURITY_STATE_H

#include "net/transport_medium.h"

#include "net/transport_libssl.h"

enum { LN_NET_KEY_MIN = 32, LN_NET_KEY_MAX = 256 }; /* in bytes; OpenSSL refuses longer keys */

struct ln_net_security {
    ln_net_libssl ssl;
    void *context;   /* SSL_CTX */
    bool shared_key; /* true: `key` is used; false: the context has certificates */
    unsigned char key[LN_NET_KEY_MAX];
    size_t key_size;
    char identity[256], server_name[256]; /* as in ln_net_security_config; server_name "": none was given */
};

#endif
