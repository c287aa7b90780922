/* wire.h - the frames of docs/protocol.md in C: the 64-byte header, its checks, and the fixed payloads.
 * Reading and writing is byte by byte, so it works the same on every machine and at any alignment. */
#ifndef LN_SYNC_WIRE_H
#define LN_SYNC_WIRE_H

#include "linnet_ext.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sizes in bytes, how long a handshake may take, and the protocol's version. */
enum {
    LN_SYNC_HEADER = 64,
    LN_SYNC_CONTROL_MAX = 4096,
    LN_SYNC_CHUNK_MIN = 4096,
    LN_SYNC_CHUNK = 256 << 10,
    LN_SYNC_CHUNK_MAX = 4 << 20,
    LN_SYNC_TENSORS_MAX = 65535,
    LN_SYNC_HANDSHAKE_MS = 10000,
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
    LN_SYNC_REPLAY,
    LN_SYNC_OVER,
    LN_SYNC_BEHIND,
    LN_SYNC_FORGOTTEN
} ln_sync_refusal;

typedef struct ln_sync_header {
    uint8_t version, type, encoding;
    uint16_t flags, shard;
    uint32_t worker, tensor, length, payload_crc;
    uint64_t job, step, total, offset;
} ln_sync_header;

enum {
    LN_SYNC_FLAG_ROWS = 1
}; /* header.flags of DATA and PUSH: the message has some rows of the tensor, not all of
    * it */

/* Bits 1 << type for ln_sync_stream_expect: frames before READY, frames that a server accepts from a worker, and frames
 * that a worker accepts from a server. */
#define LN_SYNC_HANDSHAKE                                                                                              \
    (1u << LN_SYNC_HELLO | 1u << LN_SYNC_WELCOME | 1u << LN_SYNC_TENSORS | 1u << LN_SYNC_READY | 1u << LN_SYNC_REFUSE)
#define LN_SYNC_FROM_WORKER                                                                                            \
    (1u << LN_SYNC_REFUSE | 1u << LN_SYNC_PULL | 1u << LN_SYNC_ROWS | 1u << LN_SYNC_PUSH | 1u << LN_SYNC_IDS |         \
     1u << LN_SYNC_COMMIT | 1u << LN_SYNC_HEARTBEAT | 1u << LN_SYNC_SNAPSHOT | 1u << LN_SYNC_STATUS |                  \
     1u << LN_SYNC_BYE)
#define LN_SYNC_FROM_SERVER                                                                                            \
    (1u << LN_SYNC_REFUSE | 1u << LN_SYNC_DATA | 1u << LN_SYNC_SAME | 1u << LN_SYNC_ACK | 1u << LN_SYNC_HEARTBEAT |    \
     1u << LN_SYNC_SAVED | 1u << LN_SYNC_REPORT | 1u << LN_SYNC_BYE)

/* Writes the 64 bytes including the header's CRC (payload_crc is written as given). */
void ln_sync_header_write(const ln_sync_header *header, unsigned char bytes[LN_SYNC_HEADER]);
/* Reads the header and makes the checks that need no state: CRC, magic, version, type, known flags, lengths of control
 * frames, offset within total. Returns FINE, or the reason. */
ln_sync_refusal ln_sync_header_read(ln_sync_header *header, const unsigned char bytes[LN_SYNC_HEADER]);
bool ln_sync_is_bulk(uint8_t type);

/* These functions return names for error messages, such as "PUSH" and "checksum". They never return NULL. */
const char *ln_sync_type_name(uint8_t type);
const char *ln_sync_refusal_name(ln_sync_refusal why);

/* Continues the CRC-32C `crc` with the data and returns the new one; begin with 0. Uses the processor's CRC
 * instructions if it has them. */
static inline uint32_t ln_sync_crc32c(uint32_t crc, const void *data, size_t size) {
    return linnet_crc32c(crc, data, size);
}
/* Updates linnet's 128-bit digest `sum` with the data; begin with {0, 0}. In messages the words are little-endian,
 * sum[0] first. */
void ln_sync_digest(const void *data, size_t size, uint64_t sum[2]);

/* ---- payloads ---------------------------------------------------------------------------------------------------
 * `write` fills all bytes of a payload. `read` checks length, reserved bytes and ranges, and returns false if one of
 * them is wrong. */

enum {
    LN_SYNC_HELLO_BYTES = 96,
    LN_SYNC_WELCOME_BYTES = 96,
    LN_SYNC_READY_BYTES = 32,
    LN_SYNC_REFUSE_BYTES = 8, /* and the text */
    LN_SYNC_REFUSE_TEXT = 240,
    LN_SYNC_PULL_BYTES = 32, /* one entry */
    LN_SYNC_SAME_BYTES = 16, /* one entry */
    LN_SYNC_COMMIT_BYTES = 64,
    LN_SYNC_ACK_BYTES = 112,
    LN_SYNC_BEAT_BYTES = 32,
    LN_SYNC_SAVED_BYTES = 8, /* and the text */
    LN_SYNC_SAVED_TEXT = 1024,
    LN_SYNC_TENSOR_BYTES = 32 + 8 * 8 + 256, /* size of the longest entry */
    LN_SYNC_REPORT_MAX = 16 << 20
};

typedef enum ln_sync_role { LN_SYNC_WORKER, LN_SYNC_OBSERVER, LN_SYNC_PEER, LN_SYNC_READER } ln_sync_role;

typedef struct ln_sync_hello {
    uint8_t lowest, highest;
    uint16_t role;
    uint32_t encodings;
    unsigned char job[16], nonce[16];
    uint64_t incarnation, last_step, epoch;
    uint32_t worker, group, chunk, heartbeat;
    char name[17]; /* terminated by 0 here */
} ln_sync_hello;
void ln_sync_hello_write(const ln_sync_hello *hello, unsigned char *bytes);
bool ln_sync_hello_read(ln_sync_hello *hello, const unsigned char *bytes, size_t length);

enum { LN_SYNC_WELCOME_AHEAD = 1, LN_SYNC_WELCOME_SYNCHRONOUS = 2 };
typedef struct ln_sync_welcome {
    uint8_t version, flags;
    uint16_t shard, shards;
    uint32_t encodings, worker;
    unsigned char nonce[16], server_nonce[16];
    uint64_t epoch, step, parameters, applied; /* parameters: version of the parameters */
    uint32_t tensors, chunk, heartbeat, lease;
} ln_sync_welcome;
void ln_sync_welcome_write(const ln_sync_welcome *welcome, unsigned char *bytes);
bool ln_sync_welcome_read(ln_sync_welcome *welcome, const unsigned char *bytes, size_t length);

/* A worker that wants values as f16 or bf16 sets bit 1 << (LN_SYNC_PULL_AS + encoding) of HELLO.encodings, and the
 * server grants at most one of these bits in WELCOME.encodings. */
enum { LN_SYNC_PULL_AS = 16 };
#define LN_SYNC_PULL_ENCODINGS (3u << (LN_SYNC_PULL_AS + 1))

/* READ_ONLY: tensors that updates change and that gradients also depend on, such as a loss scale. */
typedef enum ln_sync_kind { LN_SYNC_DENSE, LN_SYNC_SPARSE, LN_SYNC_AVERAGED, LN_SYNC_READ_ONLY } ln_sync_kind;

typedef struct ln_sync_tensor {
    uint32_t number, group;
    uint8_t dtype, kind, rank, name_size;
    uint64_t first_row, rows;
    uint64_t dims[8];
    char name[256]; /* terminated by 0 here */
} ln_sync_tensor;
/* Entries have different sizes; both functions return the size of the entry. `read` returns 0 for a truncated or
 * invalid entry. */
size_t ln_sync_tensor_write(const ln_sync_tensor *tensor, unsigned char *bytes);
size_t ln_sync_tensor_read(ln_sync_tensor *tensor, const unsigned char *bytes, size_t length);

typedef struct ln_sync_ready {
    unsigned char server_nonce[16], manifest[16];
} ln_sync_ready;
void ln_sync_ready_write(const ln_sync_ready *ready, unsigned char *bytes);
bool ln_sync_ready_read(ln_sync_ready *ready, const unsigned char *bytes, size_t length);

typedef struct ln_sync_refuse {
    ln_sync_refusal why;
    uint32_t detail;
    char text[LN_SYNC_REFUSE_TEXT + 1];
} ln_sync_refuse;
/* Returns the number of bytes. A longer text is truncated. */
size_t ln_sync_refuse_write(const ln_sync_refuse *refuse, unsigned char *bytes);
bool ln_sync_refuse_read(ln_sync_refuse *refuse, const unsigned char *bytes, size_t length);

enum { LN_SYNC_PULL_DIGEST = 1 };
typedef struct ln_sync_pull {
    uint32_t tensor, flags;
    uint64_t version;
    unsigned char digest[16];
} ln_sync_pull;
void ln_sync_pull_write(const ln_sync_pull *entry, unsigned char *bytes);
/* Reads entry `i` of a frame of `length` bytes. Returns false after the last one, and if the length is not a multiple
 * of the entry size. */
bool ln_sync_pull_read(ln_sync_pull *entry, const unsigned char *bytes, size_t length, size_t i);

typedef struct ln_sync_same {
    uint32_t tensor;
    uint64_t version;
} ln_sync_same;
void ln_sync_same_write(const ln_sync_same *entry, unsigned char *bytes);
bool ln_sync_same_read(ln_sync_same *entry, const unsigned char *bytes, size_t length, size_t i);

enum { LN_SYNC_COMMIT_PULL = 1, LN_SYNC_COMMIT_ABANDON = 2 };
typedef struct ln_sync_commit {
    uint32_t pushes, flags;
    double weight;
    uint64_t version, computed, began;
    double loss;
} ln_sync_commit;
void ln_sync_commit_write(const ln_sync_commit *commit, unsigned char *bytes);
bool ln_sync_commit_read(ln_sync_commit *commit, const unsigned char *bytes, size_t length);

typedef enum ln_sync_outcome { LN_SYNC_APPLIED, LN_SYNC_LATE, LN_SYNC_NOT_FINITE, LN_SYNC_NO_OUTCOME } ln_sync_outcome;
typedef struct ln_sync_ack {
    uint8_t outcome;
    uint64_t version, next;
    uint64_t first_example, examples, batch;
    uint64_t clock[5]; /* times of the first COMMIT, the last COMMIT that counted, the beginning and the end of the
                          update, and the ACK */
    uint32_t workers, members;
    double loss, loss_weight; /* mean loss of the step, and the weight behind it; weight 0: none */
} ln_sync_ack;
void ln_sync_ack_write(const ln_sync_ack *ack, unsigned char *bytes);
bool ln_sync_ack_read(ln_sync_ack *ack, const unsigned char *bytes, size_t length);

typedef struct ln_sync_beat {
    uint64_t clock, peer_clock, received;
} ln_sync_beat;
void ln_sync_beat_write(const ln_sync_beat *beat, unsigned char *bytes);
bool ln_sync_beat_read(ln_sync_beat *beat, const unsigned char *bytes, size_t length);

typedef struct ln_sync_saved {
    uint32_t status;
    char text[LN_SYNC_SAVED_TEXT + 1];
} ln_sync_saved;
size_t ln_sync_saved_write(const ln_sync_saved *saved, unsigned char *bytes);
bool ln_sync_saved_read(ln_sync_saved *saved, const unsigned char *bytes, size_t length);

#endif
