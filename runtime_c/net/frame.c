/* frame.c - writes and reads the header of a frame, and makes the checks that need no state.
 * docs/protocol.md, "The header", describes it. */
#include "net/frame.h"

#include "net/bytes.h"

#define MAGIC 0x59534e4cu /* "LNSY" */

void ln_net_header_write(const ln_net_header *header, unsigned char bytes[LN_NET_HEADER]) {
    put32(bytes, MAGIC);
    bytes[4] = header->version;
    bytes[5] = header->type;
    put16(bytes + 6, header->flags);
    put64(bytes + 8, header->job);
    put32(bytes + 16, header->worker);
    put16(bytes + 20, header->shard);
    bytes[22] = header->encoding;
    bytes[23] = 0;
    put64(bytes + 24, header->step);
    put32(bytes + 32, header->tensor);
    put32(bytes + 36, header->length);
    put64(bytes + 40, header->total);
    put64(bytes + 48, header->offset);
    put32(bytes + 56, header->payload_crc);
    put32(bytes + 60, ln_net_crc32c(0, bytes, 60));
}

/* Checks lengths and encoding by the kind of frame. An empty chunk is valid only if the whole message is empty. */
static ln_net_refusal check_kind(const ln_net_header *header, const ln_net_protocol *protocol) {
    const ln_net_message *message = &protocol->messages[header->type];
    if (!message->bulk)
        return header->length > LN_NET_CONTROL_MAX                                     ? LN_NET_OVER_LIMIT
               : header->offset || header->total != header->length || header->encoding ? LN_NET_MALFORMED
                                                                                       : LN_NET_FINE;
    if (header->encoding && !message->encoded) return LN_NET_MALFORMED;
    if (header->encoding >= protocol->encodings) return LN_NET_WRONG_ENCODING;
    if (header->length > LN_NET_CHUNK_MAX) return LN_NET_OVER_LIMIT;
    if (header->offset > header->total || header->length > header->total - header->offset) return LN_NET_MALFORMED;
    return header->length || !header->total ? LN_NET_FINE : LN_NET_MALFORMED;
}

ln_net_refusal ln_net_header_read(ln_net_header *header, const unsigned char bytes[LN_NET_HEADER],
                                  const ln_net_protocol *protocol) {
    if (get32(bytes) != MAGIC) return LN_NET_MALFORMED;
    if (get32(bytes + 60) != ln_net_crc32c(0, bytes, 60)) return LN_NET_BAD_CHECKSUM;
    *header = (ln_net_header){
        .version = bytes[4],
        .type = bytes[5],
        .flags = get16(bytes + 6),
        .job = get64(bytes + 8),
        .worker = get32(bytes + 16),
        .shard = get16(bytes + 20),
        .encoding = bytes[22],
        .step = get64(bytes + 24),
        .tensor = get32(bytes + 32),
        .length = get32(bytes + 36),
        .total = get64(bytes + 40),
        .offset = get64(bytes + 48),
        .payload_crc = get32(bytes + 56),
    };
    if (header->version != LN_NET_VERSION) return LN_NET_BAD_VERSION;
    if (header->type >= protocol->count || !protocol->messages[header->type].name) return LN_NET_UNEXPECTED;
    if (header->flags & ~protocol->messages[header->type].flags || bytes[23]) return LN_NET_MALFORMED;
    if (header->length == 0 && header->payload_crc != 0) return LN_NET_MALFORMED;
    return check_kind(header, protocol);
}
