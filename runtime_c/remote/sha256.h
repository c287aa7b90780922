/* sha256.h - SHA-256 (FIPS 180-4): the digest by which a piece is known. A host keeps pieces of several clients in one
 * folder, so nobody may be able to make two pieces with the same digest. */
#ifndef LN_REMOTE_SHA256_H
#define LN_REMOTE_SHA256_H

#include <stddef.h>

enum { LN_SHA256 = 32 }; /* bytes */

void ln_sha256(const void *data, size_t size, unsigned char digest[LN_SHA256]);

#endif
