/* wire.h - the frames of docs/protocol.md as C sees them: the 64-byte header, its check, and the fixed payloads.
 * Reading and writing is byte by byte: the same on every machine, at any alignment. */
#ifndef LN_SYNC_WIRE_H
#define LN_SYNC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LN_SYNC_HEADER = 64,
    LN_SYNC_CONTROL_MAX = 4096,
    LN_SYNC_CHUNK_MIN = 4096,
    LN_SYNC_CHUNK = 256 << 10,
    LN_SYNC_CHUNK_MAX = 4 << 20,
    LN_SYNC_VERSION = 1
};
#define LN_SYNC_NO_WORKER 0xffffffffu
#define LN_SYNC_NONE UINT64_MAX

typedef enum ln_sync_type {
    LN_SYNC_HELLO = 1,
    LN_SYNC_WELCOME,
    LN_SYNC_TENSORS,
    LN_SYNC_READY,
    LN_SYNC_REFUSE,
    LN_SYNC_PULL,
    LN_SYNC_ROWS,
    LN_SYNC_DATA,
    LN_SYNC_SAME,
    LN_SYNC_PUSH,
    LN_SYNC_IDS,
    LN_SYNC_COMMIT,
    LN_SYNC_ACK,
    LN_SYNC_HEARTBEAT,
    LN_SYNC_SNAPSHOT,
    LN_SYNC_SAVED,
    LN_SYNC_STATUS,
    LN_SYNC_REPORT,
    LN_SYNC_BYE,
    LN_SYNC_SEGMENT,
    LN_SYNC_TYPES
} ln_sync_type;

typedef enum ln_sync_refusal {
    LN_SYNC_FINE = 0,
    LN_SYNC_BAD_VERSION = 1,
    LN_SYNC_UNKNOWN_JOB,
    LN_SYNC_MODEL_DIFFERS,
    LN_SYNC_IN_USE,
    LN_SYNC_FULL,
    LN_SYNC_NOT_AUTHENTICATED,
    LN_SYNC_SUPERSEDED,
    LN_SYNC_OVER_LIMIT,
    LN_SYNC_MALFORMED,
    LN_SYNC_BAD_CHECKSUM,
    LN_SYNC_UNEXPECTED,
    LN_SYNC_UNKNOWN_TENSOR,
    LN_SYNC_WRONG_LENGTH,
    LN_SYNC_WRONG_ENCODING,
    LN_SYNC_TOO_SLOW,
    LN_SYNC_SHUTTING_DOWN,
    LN_SYNC_REPLAY
} ln_sync_refusal;

typedef struct ln_sync_header {
    uint8_t version, type, encoding;
    uint16_t flags, shard;
    uint32_t worker, tensor, length, payload_crc;
    uint64_t job, step, total, offset;
} ln_sync_header;

/* Writes the 64 bytes, with the header's CRC (payload_crc is as given). */
void ln_sync_header_write(const ln_sync_header *header, unsigned char bytes[LN_SYNC_HEADER]);
/* Reads and checks what needs no state: CRC, magic, version, type, known flags, lengths of control frames, offset
 * within total. FINE, or why not. */
ln_sync_refusal ln_sync_header_read(ln_sync_header *header, const unsigned char bytes[LN_SYNC_HEADER]);
bool ln_sync_is_bulk(uint8_t type);

/* CRC-32C of data appended to what gave `crc`; begin with 0. By the processor's instructions where it has them. */
uint32_t ln_sync_crc32c(uint32_t crc, const void *data, size_t size);

/* The fixed payloads as structs, with their write and read functions, follow here (owner: codec):
 * ln_sync_hello, ln_sync_welcome, ln_sync_tensor (entry), ln_sync_ready, ln_sync_refuse, ln_sync_commit, ln_sync_ack,
 * ln_sync_beat, ln_sync_pull_entry, ln_sync_same_entry. Each: void ln_sync_hello_write(const ln_sync_hello *, unsigned
 * char *) and bool ln_sync_hello_read(ln_sync_hello *, const unsigned char *, size_t length). */

#endif
