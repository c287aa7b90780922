/* share.h - divides the examples of a batch among workers. */
#ifndef LN_SYNC_SHARE_H
#define LN_SYNC_SHARE_H

#include "sync/server/server.h"

/* Divides `batch` examples among n workers in proportion to their speeds in examples per second. A speed of 0 is
 * unknown and counts as the average. The shares add up to `batch`, and each is at least 1 if there are enough examples.
 */
void ln_sync_share(const double *speed, uint32_t n, uint64_t batch, uint64_t *examples);

#endif
