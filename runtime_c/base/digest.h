/* digest.h - a 128-bit digest that tells data apart, except data made to collide on purpose.
 * It identifies the constants that plans computed and the models that checkpoints belong to. */
#ifndef LN_DIGEST_H
#define LN_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* Appends `data` to the digest `sum`. Begin with {0, 0}. */
void ln_digest(const void *data, size_t bytes, uint64_t sum[2]);

#endif
