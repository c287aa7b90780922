/* frame.h - the frames of a connection: the 64-byte header, its checks, and what a protocol says about its messages.
 * docs/protocol.md, "The header", describes the bytes. The functions read and write byte by byte, so they work the same
 * on every machine and at any alignment. A frame is a header and a payload. */
#ifndef LN_NET_FRAME_H
#define LN_NET_FRAME_H

#include "net/refusal.h"

#include "linnet_ext.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sizes in bytes, and the version of the header. */
enum {
    LN_NET_HEADER = 64,
    LN_NET_CONTROL_MAX = 4096, /* longest payload of a control frame */
    LN_NET_CHUNK_MIN = 4096,   /* the longest payload of a bulk frame is agreed on within these limits */
    LN_NET_CHUNK = 256 << 10,  /* the longest payload of a bulk frame by default */
    LN_NET_CHUNK_MAX = 4 << 20,
    LN_NET_VERSION = 1
};
/* header.worker of a sender that has no worker number (yet). */
#define LN_NET_NO_WORKER 0xffffffffu

/* What a protocol says about one type of message. A set of types is a uint64_t with bit LN_NET_BIT(type) for each type,
 * so a protocol has at most 64 types. */
typedef struct ln_net_message {
    const char *name; /* NULL: the protocol has no message with this number */
    bool bulk;    /* the message is sent in chunks, each of which is a bulk frame; otherwise it is one control frame */
    bool encoded; /* header.encoding may be other than 0; only for bulk messages */
    uint16_t flags; /* bits that header.flags may have */
} ln_net_message;
#define LN_NET_BIT(type) (UINT64_C(1) << (type))

/* The messages that a stream may carry. REFUSE (refusal.h) is one of them in every protocol. */
typedef struct ln_net_protocol {
    const ln_net_message *messages; /* indexed by type; no message has type 0 */
    uint8_t count, encodings;       /* every type is less than `count`, every encoding less than `encodings` */
    uint64_t handshake;             /* set of the types that are allowed until ln_net_stream_open */
} ln_net_protocol;

/* The fields of a header. A control frame is a whole message, so its offset is 0 and its total is its length. A bulk
 * frame has the `length` bytes that begin at `offset` of a message of `total` bytes. */
typedef struct ln_net_header {
    uint8_t version, type, encoding;
    uint16_t flags, shard;
    uint32_t worker, tensor, length, payload_crc; /* payload_crc: CRC-32C of the payload; 0 if the payload is empty */
    uint64_t job, step, total, offset;
} ln_net_header;

/* Writes the 64 bytes, and computes the CRC of the header itself. The caller computes payload_crc. */
void ln_net_header_write(const ln_net_header *header, unsigned char bytes[LN_NET_HEADER]);
/* Reads the header and makes the checks that need no state: magic, CRC, version, type, flags, encoding, the limits of
 * `length`, and whether the payload lies within `total`. Returns LN_NET_FINE, or the reason to refuse the frame.
 * *header may have been changed in both cases. */
ln_net_refusal ln_net_header_read(ln_net_header *header, const unsigned char bytes[LN_NET_HEADER],
                                  const ln_net_protocol *protocol);

/* Returns the CRC-32C of some earlier bytes, whose CRC is `crc`, followed by the data. The CRC of no bytes is 0. The
 * function uses the processor's CRC instructions if there are any. */
static inline uint32_t ln_net_crc32c(uint32_t crc, const void *data, size_t size) {
    return linnet_crc32c(crc, data, size);
}

#endif
