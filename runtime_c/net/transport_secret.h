/* transport_secret.h - reads a key from a file that nobody else may read. */
#ifndef LN_NET_TRANSPORT_SECRET_H
#define LN_NET_TRANSPORT_SECRET_H

#include "net/transport_security_state.h"

/* Checks that a file is safe for a secret: it must be a regular file that belongs to our user or root, and no other
 * user may have any access to it. Errors: NOT_FOUND, READ_FAILED, NOT_AUTHENTICATED (the file is not safe). */
linnet_status ln_net_secret_check(const char *path, linnet_error *error);
/* Reads a key from a file, after the same checks. The file has the key as hex digits or as raw bytes. *size receives
 * the number of bytes of the key. The caller wipes `key` when it is no longer needed. Errors: those of
 * ln_net_secret_check, and NOT_AUTHENTICATED if the length is wrong or the key is all zeros. */
linnet_status ln_net_secret_read(const char *path, unsigned char key[LN_NET_KEY_MAX], size_t *size,
                                 linnet_error *error);
/* Overwrites memory with zeros. The compiler cannot leave this out, as it may do with memset. */
void ln_net_wipe(void *data, size_t size);

#endif
