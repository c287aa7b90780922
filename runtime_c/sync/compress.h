/* compress.h - how the values of a tensor are written for the wire: the encodings of docs/protocol.md, byte by byte.
 * Lossy ones take an error-feedback residual: what a message could not say is added to the next one.
 *
 * n f32 values become one message. The whole message is put together before it is decoded; in which chunks it
 * travelled does not matter. All numbers are little-endian, at any alignment, blocks in order and without padding:
 *
 *   0 plain  f32[n]. Other dtypes travel as they are, and are not handled here.
 *   1 f16    u16[n]: IEEE 754 binary16, rounded to nearest even; what is finite stays finite (at most 65504).
 *   2 bf16   u16[n]: the upper half of the f32, rounded to nearest even; what is finite stays finite.
 *   3 i8     f32 scale[b], then i8[n]; b blocks of 256 values (the last may be shorter). value = q * scale,
 *            scale = greatest magnitude / 127, q in [-127, 127].
 *   4 top-k  varint k; k varint gaps; bf16[k]. The k values of greatest magnitude (of equal ones the first), in order
 *            of their index; all others are 0. Gap: index - previous index - 1 (the first: the index). Varint: 7 bits a
 *            byte, low ones first, bit 7 set in all but the last, no longer than needed.
 *   5 1-bit  f32 pair[b][2], then u32 words; b blocks of 1024 values (the last may be shorter). A block of m values has
 *            w = ceil(m / 32) words; bit j of word i is the sign of value j * w + i (1: negative, or -0). Negative
 *            values become pair[0], the others pair[1]: their means (1-bit SGD: Seide, Fu, Droppo, Li, Yu 2014).
 *
 * What is not finite arrives as not finite, so that a loss that overflowed is seen where the update is made: the value
 * itself in 0, 1, 2 and 4; the whole block as NaN in 3 and 5, whose scale or pair then is the NaN 0x7fc00000. Its
 * residual becomes 0. Results are the same bits on every machine. */
#ifndef LN_SYNC_COMPRESS_H
#define LN_SYNC_COMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ln_sync_encoding {
    LN_SYNC_PLAIN = 0,
    LN_SYNC_F16 = 1,
    LN_SYNC_BF16 = 2,
    LN_SYNC_I8 = 3,
    LN_SYNC_TOPK = 4,
    LN_SYNC_ONEBIT = 5,
    LN_SYNC_ENCODINGS
} ln_sync_encoding;

typedef enum ln_sync_decoding {
    LN_SYNC_DECODED = 0,
    LN_SYNC_BAD_LENGTH, /* not the bytes that this encoding of this many values has */
    LN_SYNC_BAD_INDEX,  /* top-k: beyond the tensor, or a varint that is cut or too long */
    LN_SYNC_BAD_SCALE,  /* i8, 1-bit: infinite, of the wrong sign, or another NaN than the one above */
    LN_SYNC_BAD_ENCODING
} ln_sync_decoding;

/* "top-k" and so on; NULL for a number that is none. */
const char *ln_sync_encoding_name(int encoding);
/* For people: what is wrong. */
const char *ln_sync_decoding_text(int decoding);

/* Most bytes that encoding `count` values can take (exactly so many but for top-k). ratio: part of the values that
 * top-k keeps, in (0, 1]; at least one value. SIZE_MAX: unknown encoding, ratio out of range, or too large. */
size_t ln_sync_encoded_bound(int encoding, uint64_t count, double ratio);
/* Whether a message of so many bytes can be right, before it has come: a receiver then needs at most about the bytes of
 * the plain values. */
bool ln_sync_encoded_fits(int encoding, uint64_t count, uint64_t bytes);
/* Encodes values[i] + residual[i] (residual NULL: 0, and what is lost is lost) and leaves in residual what the message
 * does not say. Returns the bytes written to out, which has room for the bound. values and residual do not overlap. */
size_t ln_sync_encode(int encoding, double ratio, const float *values, float *residual, uint64_t count, void *out);
/* Decodes any bytes, right or hostile: all of `out` is written, or nothing and the reason is returned. */
int ln_sync_decode(int encoding, const void *data, size_t bytes, float *out, uint64_t count);
/* sum[i] += weight * decoded[i], rounded twice; top-k touches the values it has only. Or nothing, and the reason. */
int ln_sync_decode_add(int encoding, const void *data, size_t bytes, float weight, float *sum, uint64_t count);

#endif
