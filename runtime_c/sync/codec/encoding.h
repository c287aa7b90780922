/* encoding.h - the numbers of the encodings of docs/protocol.md, and the results of decoding. compress.h describes the
 * encodings. */
#ifndef LN_SYNC_ENCODING_H
#define LN_SYNC_ENCODING_H

typedef enum ln_sync_encoding {
    LN_SYNC_PLAIN = 0,
    LN_SYNC_F16 = 1,
    LN_SYNC_BF16 = 2,
    LN_SYNC_I8 = 3,
    LN_SYNC_TOPK = 4,
    LN_SYNC_ONEBIT = 5,
    LN_SYNC_ENCODINGS /* number of encodings */
} ln_sync_encoding;

typedef enum ln_sync_decoding {
    LN_SYNC_DECODED = 0, /* no error */
    LN_SYNC_BAD_LENGTH,  /* the message is shorter or longer than this encoding of this many values */
    LN_SYNC_BAD_INDEX,   /* in top-k: an index that is not in the tensor, or a varint that is truncated or too long */
    LN_SYNC_BAD_SCALE,   /* in i8 or 1-bit: a scale that is infinite, has the wrong sign, or is a NaN other than
                            0x7fc00000 */
    LN_SYNC_BAD_ENCODING /* an unknown encoding */
} ln_sync_decoding;

#endif
