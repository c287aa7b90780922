/* combine.h - the arithmetic of a step: combines the gradients of several workers into one, in a fixed order.
 * docs/protocol.md, "Arithmetic", defines the exact bits of the result. */
#ifndef LN_SYNC_COMBINE_H
#define LN_SYNC_COMBINE_H

#include <stdint.h>

/* Class of the largest element. Gradients are LARGE from 2^31 on (f64: 2^255). Variables are LARGE from 2^95 on (f64:
 * 2^767); f16 variables always are. One update of smaller variables by smaller gradients cannot overflow: an overflow
 * takes 2^30 such updates. */
typedef enum ln_sync_size { LN_SYNC_ORDINARY, LN_SYNC_LARGE, LN_SYNC_INFINITE } ln_sync_size;

/* out = (0 + s0 + s1 + ...) / divisor, or (0 + w0 s0 + w1 s1 + ...) / divisor, element by element. Nothing is divided
 * if divisor is 0 or 1. weights NULL: all weights are 1. dtype: LINNET_F32 or LINNET_F64. `out` may be the first
 * source. */
void ln_sync_combine(const void *const *sources, const double *weights, uint32_t count, double divisor,
                     uint64_t elements, int dtype, void *out);
ln_sync_size ln_sync_size_of(const void *data, uint64_t elements, int dtype);

#endif
