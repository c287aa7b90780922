/* combine.h - the arithmetic of a step: combines the gradients of several workers into one, in a fixed order.
 * docs/protocol.md, "Arithmetic", defines the exact bits of the result. */
#ifndef LN_SYNC_COMBINE_H
#define LN_SYNC_COMBINE_H

#include <stdint.h>

/* The class of the largest magnitude in a tensor. A gradient is LARGE from 2^31 on (f64: 2^255). A variable is LARGE
 * from 2^95 on (f64: 2^767), and an f16 variable always is. If neither is LARGE, one update cannot overflow, because an
 * overflow would take 2^30 such updates. INFINITE: an element is infinite or NaN. */
typedef enum ln_sync_size { LN_SYNC_ORDINARY, LN_SYNC_LARGE, LN_SYNC_INFINITE } ln_sync_size;

/* Computes out = (0 + w0 s0 + w1 s1 + ...) / divisor, element by element, for `count` sources. If `weights` is NULL, no
 * products are computed. If `divisor` is 0 or 1, nothing is divided. `dtype` is LINNET_F32 or LINNET_F64. `out` may be
 * the first source; otherwise it must not overlap a source. */
void ln_sync_combine(const void *const *sources, const double *weights, uint32_t count, double divisor,
                     uint64_t elements, int dtype, void *out);
/* Returns the class of a gradient of this dtype, LINNET_F32 or LINNET_F64. */
ln_sync_size ln_sync_size_of(const void *data, uint64_t elements, int dtype);

#endif
