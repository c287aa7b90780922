/* linnet_sync_ext.h - the encodings of gradients, without a network; for code that builds on liblinnet_sync.
 * Workers and servers encode and decode by themselves. These functions are for tests, simulators and adapters to other
 * systems. */
#ifndef LINNET_SYNC_EXT_H
#define LINNET_SYNC_EXT_H

#include "linnet_sync.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the maximum number of bytes of `count` f32 values in an encoding (linnet_sync_compression). Returns 0 if the
 * encoding is unknown, `fraction` is not in (0, 1], or there are too many values. Only TOP_K uses `fraction`. */
LINNET_API size_t linnet_sync_encoded_bound(int encoding, double fraction, uint64_t count);
/* Encodes values[i] + residual[i], and stores in `residual` the part that the encoding left out (error feedback). If
 * `residual` is NULL, only values[i] is encoded, and the part that is left out is lost. Writes *bytes bytes to `out`,
 * whose `capacity` must be at least the bound. `values` and `residual` must not overlap. Errors: INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_sync_encode(int encoding, double fraction, const float *values, float *residual,
                                            uint64_t count, void *out, size_t capacity, size_t *bytes,
                                            linnet_error *error);
/* Decodes a message of `count` values. If `weight` is NULL, out[i] = value; otherwise, out[i] += *weight * value. The
 * bytes are not trusted; on an error nothing is written. Errors: INVALID_ARGUMENT, PROTOCOL_ERROR (the error says what
 * is wrong). */
LINNET_API linnet_status linnet_sync_decode(int encoding, const void *data, size_t bytes, const float *weight,
                                            float *out, uint64_t count, linnet_error *error);

#ifdef __cplusplus
}
#endif

#endif
