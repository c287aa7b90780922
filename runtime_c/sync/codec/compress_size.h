/* compress_size.h - the number of bytes that encoded values take. */
#ifndef LN_SYNC_COMPRESS_SIZE_H
#define LN_SYNC_COMPRESS_SIZE_H

#include "sync/codec/encoding.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the largest number of bytes that encoding `count` values can take; for all encodings except top-k this is the
 * exact number. ratio: fraction of the values that top-k keeps, in (0, 1]; at least one value is kept. Returns SIZE_MAX
 * for an unknown encoding, a ratio out of range, or a size that is too large. */
size_t ln_sync_encoded_bound(int encoding, uint64_t count, double ratio);
/* Tells whether a message with `count` values can have `bytes` bytes in this encoding. A receiver asks this before the
 * message arrives, so that hostile lengths cannot make it allocate much more memory than the plain values take. */
bool ln_sync_encoded_fits(int encoding, uint64_t count, uint64_t bytes);

#endif
