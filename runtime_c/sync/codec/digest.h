/* digest.h - the 128-bit digest of values and manifests, by which two sides compare them without sending them. */
#ifndef LN_SYNC_DIGEST_H
#define LN_SYNC_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* Updates linnet's 128-bit digest `sum` with the data; begin with {0, 0}. In messages the words are little-endian,
 * sum[0] first. */
void ln_sync_digest(const void *data, size_t size, uint64_t sum[2]);

#endif
