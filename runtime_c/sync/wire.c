/* wire.c - writes and reads the header of a frame, and makes the checks that need no state.
 * docs/protocol.md, "The header", describes it. */
#include "sync/wire.h"

#include "sync/bytes.h"
#include "sync/compress.h"

#define MAGIC 0x59534e4cu /* "LNSY" */

/* Indexed by frame type. */
static const struct {
    const char *name;
    bool bulk;
    uint16_t flags; /* allowed flags */
} types[LN_SYNC_TYPES] = {
    [LN_SYNC_HELLO] = {"HELLO", false, 0},
    [LN_SYNC_WELCOME] = {"WELCOME", false, 0},
    [LN_SYNC_TENSORS] = {"TENSORS", false, 0},
    [LN_SYNC_READY] = {"READY", false, 0},
    [LN_SYNC_REFUSE] = {"REFUSE", false, 0},
    [LN_SYNC_PULL] = {"PULL", false, 0},
    [LN_SYNC_ROWS] = {"ROWS", true, 0},
    [LN_SYNC_DATA] = {"DATA", true, LN_SYNC_FLAG_ROWS},
    [LN_SYNC_SAME] = {"SAME", false, 0},
    [LN_SYNC_PUSH] = {"PUSH", true, LN_SYNC_FLAG_ROWS},
    [LN_SYNC_IDS] = {"IDS", true, 0},
    [LN_SYNC_COMMIT] = {"COMMIT", false, 0},
    [LN_SYNC_ACK] = {"ACK", false, 0},
    [LN_SYNC_HEARTBEAT] = {"HEARTBEAT", false, 0},
    [LN_SYNC_SNAPSHOT] = {"SNAPSHOT", false, 0},
    [LN_SYNC_SAVED] = {"SAVED", false, 0},
    [LN_SYNC_STATUS] = {"STATUS", false, 0},
    [LN_SYNC_REPORT] = {"REPORT", true, 0},
    [LN_SYNC_BYE] = {"BYE", false, 0},
    [LN_SYNC_SEGMENT] = {"SEGMENT", true, 0},
    [LN_SYNC_PUT] = {"PUT", true, 0},
    [LN_SYNC_STORED] = {"STORED", false, 0},
};

static const char *const refusals[] = {
    "fine",
    "version",
    "unknown job",
    "model differs",
    "worker number in use",
    "full",
    "not authenticated",
    "superseded",
    "limit",
    "malformed",
    "checksum",
    "unexpected frame",
    "unknown tensor",
    "wrong length",
    "encoding not agreed",
    "too slow",
    "shutting down",
    "replay",
    "the job is over",
    "server is behind",
    "worker is forgotten",
};

bool ln_sync_is_bulk(uint8_t type) { return type < LN_SYNC_TYPES && types[type].bulk; }

const char *ln_sync_type_name(uint8_t type) {
    return type < LN_SYNC_TYPES && types[type].name ? types[type].name : "unknown";
}

const char *ln_sync_refusal_name(ln_sync_refusal why) {
    return (size_t)why < sizeof refusals / sizeof *refusals ? refusals[why] : "unknown";
}

void ln_sync_header_write(const ln_sync_header *header, unsigned char bytes[LN_SYNC_HEADER]) {
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
    put32(bytes + 60, ln_sync_crc32c(0, bytes, 60));
}

/* Checks lengths and encoding by the kind of frame. An empty chunk is valid only if the whole message is empty. */
static ln_sync_refusal check_kind(const ln_sync_header *header) {
    if (!types[header->type].bulk)
        return header->length > LN_SYNC_CONTROL_MAX                                    ? LN_SYNC_OVER_LIMIT
               : header->offset || header->total != header->length || header->encoding ? LN_SYNC_MALFORMED
                                                                                       : LN_SYNC_FINE;
    const bool encoded =
        header->type == LN_SYNC_PUSH || header->type == LN_SYNC_DATA || header->type == LN_SYNC_SEGMENT;
    if (header->encoding && !encoded) return LN_SYNC_MALFORMED;
    if (header->encoding >= LN_SYNC_ENCODINGS) return LN_SYNC_WRONG_ENCODING;
    if (header->length > LN_SYNC_CHUNK_MAX) return LN_SYNC_OVER_LIMIT;
    if (header->offset > header->total || header->length > header->total - header->offset) return LN_SYNC_MALFORMED;
    return header->length || !header->total ? LN_SYNC_FINE : LN_SYNC_MALFORMED;
}

ln_sync_refusal ln_sync_header_read(ln_sync_header *header, const unsigned char bytes[LN_SYNC_HEADER]) {
    if (get32(bytes) != MAGIC) return LN_SYNC_MALFORMED;
    if (get32(bytes + 60) != ln_sync_crc32c(0, bytes, 60)) return LN_SYNC_BAD_CHECKSUM;
    *header = (ln_sync_header){
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
    if (header->version != LN_SYNC_VERSION) return LN_SYNC_BAD_VERSION;
    if (header->type >= LN_SYNC_TYPES || !types[header->type].name) return LN_SYNC_UNEXPECTED;
    if (header->flags & ~types[header->type].flags || bytes[23]) return LN_SYNC_MALFORMED;
    if (header->length == 0 && header->payload_crc != 0) return LN_SYNC_MALFORMED;
    return check_kind(header);
}
