/* digest.h - the 128-bit digest of values and manifests. Two sides compare digests instead of sending the data. */
#ifndef LN_SYNC_DIGEST_H
#define LN_SYNC_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* Updates linnet's 128-bit digest `sum` with the data. `sum` must be {0, 0} before the first call. In messages, sum[0]
 * comes first, and both words are little-endian. */
void ln_sync_digest(const void *data, size_t size, uint64_t sum[2]);

#endif
