/* sha256.h - SHA-256 (FIPS 180-4): the digest by which a piece is known. A host keeps pieces of several clients in one
 * folder, so nobody may be able to make two pieces with the same digest. */
#ifndef LN_REMOTE_SHA256_H
#define LN_REMOTE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { LN_SHA256 = 32 }; /* bytes */

typedef struct ln_sha256_state {
    uint32_t sum[8];
    unsigned char held[64]; /* the last size % 64 bytes */
    uint64_t size;          /* bytes so far */
} ln_sha256_state;

/* The digest of bytes that come in parts. */
ln_sha256_state ln_sha256_begin(void);
void ln_sha256_add(ln_sha256_state *state, const void *data, size_t size);
void ln_sha256_end(ln_sha256_state *state, unsigned char digest[LN_SHA256]);

void ln_sha256(const void *data, size_t size, unsigned char digest[LN_SHA256]);

#endif
