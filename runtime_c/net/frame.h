/* frame.h - the frames of a connection: the 64-byte header, its checks, and what a protocol says about its messages.
 * docs/protocol.md, "The header", describes the bytes. Reading and writing is byte by byte, so it works the same on
 * every machine and at any alignment. */
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
    LN_NET_CONTROL_MAX = 4096,
    LN_NET_CHUNK_MIN = 4096,
    LN_NET_CHUNK = 256 << 10,
    LN_NET_CHUNK_MAX = 4 << 20,
    LN_NET_VERSION = 1
};
#define LN_NET_NO_WORKER 0xffffffffu

/* A message of a protocol. A set of messages has bit LN_NET_BIT(type) for each of them, so a protocol has at most 64.
 */
typedef struct ln_net_message {
    const char *name;
    bool bulk;      /* sent in chunks; otherwise it is one control frame */
    bool encoded;   /* header.encoding may be other than 0 */
    uint16_t flags; /* bits that header.flags may have */
} ln_net_message;
#define LN_NET_BIT(type) (UINT64_C(1) << (type))

/* The messages that a stream may carry. REFUSE (refusal.h) is one of them in every protocol. */
typedef struct ln_net_protocol {
    const ln_net_message *messages; /* by type; type 0 is no message */
    uint8_t count, encodings;       /* types and encodings are less than these numbers */
    uint64_t handshake;             /* messages that are allowed until ln_net_stream_open */
} ln_net_protocol;

typedef struct ln_net_header {
    uint8_t version, type, encoding;
    uint16_t flags, shard;
    uint32_t worker, tensor, length, payload_crc;
    uint64_t job, step, total, offset;
} ln_net_header;

/* Writes the 64 bytes including the header's CRC (payload_crc is written as given). */
void ln_net_header_write(const ln_net_header *header, unsigned char bytes[LN_NET_HEADER]);
/* Reads the header and makes the checks that need no state: CRC, magic, version, type, known flags, lengths of control
 * frames, offset within total. Returns FINE, or the reason. */
ln_net_refusal ln_net_header_read(ln_net_header *header, const unsigned char bytes[LN_NET_HEADER],
                                  const ln_net_protocol *protocol);

/* Continues the CRC-32C `crc` with the data and returns the new one; begin with 0. Uses the processor's CRC
 * instructions if it has them. */
static inline uint32_t ln_net_crc32c(uint32_t crc, const void *data, size_t size) {
    return linnet_crc32c(crc, data, size);
}

#endif
