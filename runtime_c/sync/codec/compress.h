/* compress.h - how the values of a tensor are encoded in messages: the encodings of docs/protocol.md, byte by byte.
 * Lossy encodings keep an error-feedback residual: the error of one message is added to the next message.
 *
 * n f32 values become one message. The receiver assembles the whole message before decoding it, so the chunk borders
 * do not matter. All numbers are little-endian, at any alignment; blocks are in order and without padding:
 *
 *   0 plain  f32[n]. Other dtypes are sent unchanged and are not handled here.
 *   1 f16    u16[n]: IEEE 754 binary16, rounded to nearest even; finite values stay finite (at most 65504).
 *   2 bf16   u16[n]: the upper half of the f32, rounded to nearest even; finite values stay finite.
 *   3 i8     f32 scale[b], then i8[n]; b blocks of 256 values (the last may be shorter). value = q * scale,
 *            scale = greatest magnitude / 127, q in [-127, 127].
 *   4 top-k  varint k; k varint gaps; bf16[k]. The k values of greatest magnitude, in order of their index. Of equal
 *            magnitudes the first ones are kept. All other values are 0. Gap: index - previous index - 1 (for the first
 *            value: the index). Varint: 7 bits per byte, low bits first, bit 7 set in all bytes but the last, as short
 *            as possible.
 *   5 1-bit  f32 pair[b][2], then u32 words; b blocks of 1024 values (the last may be shorter). A block of m values has
 *            w = ceil(m / 32) words; bit j of word i is the sign of value j * w + i (1: negative, or -0). pair[0] is
 *            the mean of the negative values and replaces them; pair[1] does the same for the other values (1-bit SGD:
 *            Seide, Fu, Droppo, Li, Yu 2014).
 *
 * A value that is not finite arrives as a value that is not finite, so the server notices when a worker's loss
 * overflowed. Encodings 0, 1, 2 and 4 keep the value itself. Encodings 3 and 5 make the whole block NaN: its scale or
 * pair is the NaN 0x7fc00000. The residual of such a value or block becomes 0. Results are the same bits on every
 * machine. */
#ifndef LN_SYNC_COMPRESS_H
#define LN_SYNC_COMPRESS_H

#include "sync/codec/encoding.h"

#include <stddef.h>
#include <stdint.h>

/* Returns the name, such as "top-k", or NULL for an unknown encoding. */
const char *ln_sync_encoding_name(int encoding);
/* Returns a text for error messages that describes the result of a decoder, an ln_sync_decoding. */
const char *ln_sync_decoding_text(int decoding);
/* Encodes values[i] + residual[i], and stores the error of the encoding in residual[i]. If `residual` is NULL, nothing
 * is added and the error is lost. `ratio` is only for top-k. `out` needs room for ln_sync_encoded_bound bytes. Returns
 * the number of bytes that were written. The encoding and the ratio must be valid. `values` and `residual` must not
 * overlap. */
size_t ln_sync_encode(int encoding, double ratio, const float *values, float *residual, uint64_t count, void *out);
/* Decodes a message, whose bytes may be wrong or hostile. Writes all `count` values to `out` and returns
 * LN_SYNC_DECODED; or writes nothing and returns the reason, an ln_sync_decoding. */
int ln_sync_decode(int encoding, const void *data, size_t bytes, float *out, uint64_t count);
/* Computes sum[i] += weight * decoded[i], and rounds both the product and the sum. Top-k changes only the sums of the
 * values that the message has. On an error, writes nothing and returns the reason. */
int ln_sync_decode_add(int encoding, const void *data, size_t bytes, float weight, float *sum, uint64_t count);

#endif
