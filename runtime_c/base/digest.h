/* digest.h - a 128-bit digest. It tells data apart unless somebody made the data so that the digests are equal. The
 * digest identifies the constants that plans have computed, and the model to which a checkpoint belongs. */
#ifndef LN_DIGEST_H
#define LN_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* Updates the digest `sum` with `data`. `sum` must be {0, 0} before the first call. The digest depends on how the data
 * is divided into calls. */
void ln_digest(const void *data, size_t bytes, uint64_t sum[2]);

#endif
