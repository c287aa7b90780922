/* transport_security.h - the TLS data that all connections of one side share: OpenSSL, its context, the key.
 * Created in transport_security.c, used in transport_tls.c. */
#ifndef LN_NET_TRANSPORT_SECURITY_H
#define LN_NET_TRANSPORT_SECURITY_H

#include "net/transport_medium.h"

#include "net/transport_libssl.h"

enum { LN_NET_KEY_MIN = 32, LN_NET_KEY_MAX = 256 }; /* in bytes; OpenSSL refuses longer keys */

struct ln_net_security {
    ln_net_libssl ssl;
    void *context; /* SSL_CTX */
    bool shared_key;
    unsigned char key[LN_NET_KEY_MAX];
    size_t key_size;
    char identity[256], server_name[256];
};

/* Checks that the file is safe for a secret: regular, owned by our user or root, and readable by nobody else. */
linnet_status ln_net_secret_check(const char *path, linnet_error *error);
/* Reads a key from such a file. */
linnet_status ln_net_secret_read(const char *path, unsigned char key[LN_NET_KEY_MAX], size_t *size,
                                 linnet_error *error);
void ln_net_wipe(void *data, size_t size);

/* Callbacks for OpenSSL, in transport_tls.c. */
ln_net_use_psk ln_net_tls_use_psk;
ln_net_find_psk ln_net_tls_find_psk;

#endif
