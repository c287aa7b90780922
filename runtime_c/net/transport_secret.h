/* transport_secret.h - reads a key from a file that nobody else may read. */
#ifndef LN_NET_TRANSPORT_SECRET_H
#define LN_NET_TRANSPORT_SECRET_H

#include "net/transport_security_state.h"

/* Checks that the file is safe for a secret: regular, owned by our user or root, and readable by nobody else. */
linnet_status ln_net_secret_check(const char *path, linnet_error *error);
/* Reads a key from such a file. */
linnet_status ln_net_secret_read(const char *path, unsigned char key[LN_NET_KEY_MAX], size_t *size,
                                 linnet_error *error);
void ln_net_wipe(void *data, size_t size);

#endif
