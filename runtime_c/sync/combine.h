/* combine.h - the arithmetic of a step: gradients of several workers become one, in a fixed order.
 * docs/protocol.md, "Arithmetic", says which bits come out. */
#ifndef LN_SYNC_COMBINE_H
#define LN_SYNC_COMBINE_H

#include "sync/server_core.h"

/* out = (0 + s0 + s1 + ...) / divisor, or (0 + w0 s0 + w1 s1 + ...) / divisor, element by element; divisor 0 or 1: not
 * divided. weights NULL: all one. dtype: LINNET_F32 or LINNET_F64. out may be s0. */
void ln_sync_combine(const void *const *sources, const double *weights, uint32_t count, double divisor,
                     uint64_t elements, int dtype, void *out);
ln_sync_size ln_sync_size_of(const void *data, uint64_t elements, int dtype);

#endif
