/* payload.h - the payloads of the messages of docs/protocol.md as structs, and their codec. docs/protocol.md says what
 * each field means; comments here only say what a reader of the code needs. */
#ifndef LN_SYNC_PAYLOAD_H
#define LN_SYNC_PAYLOAD_H

#include "sync/codec/messages.h"

enum {
    LN_SYNC_TENSORS_MAX = 65535, /* most tensors of a manifest */
    LN_SYNC_HANDSHAKE_MS = 10000 /* how long a handshake may take */
};
/* A step or version that does not exist. */
#define LN_SYNC_NONE UINT64_MAX

/* LN_SYNC_HELLO_BYTES and so on are the sizes of payloads in messages.inc. For SAVED, this is the size without the text
 * that may follow. For PULL and SAME, it is the size of one entry. */
enum {
#define LN_MESSAGE(number, name, lower, kind, flags, phase, senders, form, size, text) LN_SYNC_##name##_BYTES = size,
#include "sync/codec/messages.inc"
#undef LN_MESSAGE
    LN_SYNC_SAVED_TEXT = 1024,
    LN_SYNC_TENSOR_BYTES = 32 + 8 * 8 + 256, /* size of the longest entry of TENSORS */
    LN_SYNC_REPORT_MAX = 16 << 20            /* most bytes of a REPORT */
};

/* The first message of a client. */
typedef struct ln_sync_hello {
    uint8_t lowest, highest; /* versions of the protocol that the client supports */
    uint16_t role;
    uint32_t encodings;
    unsigned char job[16], nonce[16];
    uint64_t incarnation, last_step, epoch;   /* incarnation: a random number of the process */
    uint32_t worker, group, chunk, heartbeat; /* worker LN_NET_NO_WORKER: the server chooses the number */
    char name[17];                            /* ends with a 0 here, unlike in the payload */
} ln_sync_hello;

enum { LN_SYNC_WELCOME_AHEAD = 1, LN_SYNC_WELCOME_SYNCHRONOUS = 2 };
/* The server's answer to HELLO. */
typedef struct ln_sync_welcome {
    uint8_t version, flags;
    uint16_t shard, shards;
    uint32_t encodings, worker;
    unsigned char nonce[16], server_nonce[16];
    uint64_t epoch, step, parameters, applied; /* parameters: version of the parameters */
    uint32_t tensors, chunk, heartbeat, lease;
} ln_sync_welcome;

/* A worker that wants values as f16 or bf16 sets bit 1 << (LN_SYNC_PULL_AS + encoding) of HELLO.encodings, and the
 * server grants at most one of these bits in WELCOME.encodings. */
enum { LN_SYNC_PULL_AS = 16 };
#define LN_SYNC_PULL_ENCODINGS (3u << (LN_SYNC_PULL_AS + 1))

/* What workers push for a tensor: a gradient, rows of a gradient, a value to be averaged, or nothing. READ_ONLY tensors
 * are changed only by updates, and workers need them, too, such as a loss scale. */
typedef enum ln_sync_kind { LN_SYNC_DENSE, LN_SYNC_SPARSE, LN_SYNC_AVERAGED, LN_SYNC_READ_ONLY } ln_sync_kind;

/* An entry of TENSORS. */
typedef struct ln_sync_tensor {
    uint32_t number, group;
    uint8_t dtype, kind, rank, name_size;
    uint64_t first_row, rows;
    uint64_t dims[8];
    char name[256]; /* ends with a 0 here, unlike in the payload */
} ln_sync_tensor;
/* Write and read one entry. Entries have different sizes, so both functions return the size of the entry. `read`
 * returns 0 if the entry is truncated or invalid. */
size_t ln_sync_tensor_write(const ln_sync_tensor *tensor, unsigned char *bytes);
size_t ln_sync_tensor_read(ln_sync_tensor *tensor, const unsigned char *bytes, size_t length);

/* The client's last message of the handshake: it repeats the server's nonce and the digest of the manifest. */
typedef struct ln_sync_ready {
    unsigned char server_nonce[16], manifest[16];
} ln_sync_ready;

enum { LN_SYNC_PULL_DIGEST = 1 };
/* An entry of PULL: a wanted tensor, and the version or digest of the value that the client has. */
typedef struct ln_sync_pull {
    uint32_t tensor, flags;
    uint64_t version;
    unsigned char digest[16];
} ln_sync_pull;

/* An entry of SAME: the client's value of this tensor is still current. */
typedef struct ln_sync_same {
    uint32_t tensor;
    uint64_t version;
} ln_sync_same;

enum { LN_SYNC_COMMIT_PULL = 1, LN_SYNC_COMMIT_ABANDON = 2 };
/* Ends the pushes of a step. */
typedef struct ln_sync_commit {
    uint32_t pushes, flags; /* pushes: number of tensors that were pushed */
    double weight;
    uint64_t version, computed, began;
    double loss;
} ln_sync_commit;

/* The result of a step's pushes: applied, too late, or dropped because a value was not finite. NO_OUTCOME: the ACK only
 * says which step is next. */
typedef enum ln_sync_outcome { LN_SYNC_APPLIED, LN_SYNC_LATE, LN_SYNC_NOT_FINITE, LN_SYNC_NO_OUTCOME } ln_sync_outcome;
/* The answer to COMMIT, sent when the step is closed. */
typedef struct ln_sync_ack {
    uint8_t outcome;
    uint64_t version, next;                  /* version of the parameters; the next step */
    uint64_t first_example, examples, batch; /* this worker's share of the next global batch; batch 0: no sharing */
    uint64_t clock[5]; /* times of the first COMMIT, the last COMMIT that counted, the beginning and the end of the
                          update, and the ACK */
    uint32_t workers, members;
    /* The mean loss of the step, and the sum of the weights behind it. Weight 0: no worker gave a loss. */
    double loss, loss_weight;
} ln_sync_ack;

/* The times from which the receiver estimates the difference of the clocks, in ns. */
typedef struct ln_sync_heartbeat {
    uint64_t clock, peer_clock, received;
} ln_sync_heartbeat;

/* The answer to PUT. */
typedef struct ln_sync_stored {
    uint8_t outcome; /* APPLIED or NOT_FINITE */
    uint64_t version;
} ln_sync_stored;

/* The answer to SNAPSHOT. */
typedef struct ln_sync_saved {
    uint32_t status; /* linnet_status; the text says where the snapshot is, or why there is none */
    char text[LN_SYNC_SAVED_TEXT + 1];
} ln_sync_saved;

/* ---- the codec ---------------------------------------------------------------------------------------------------
 * One codec serves all messages; payload.c says where each field lies. `write` fills all bytes of a payload and returns
 * their number. `read` checks the length, the reserved bytes and the ranges of the fields; it returns false if one of
 * them is wrong, and *message may then be partly filled. For a message of entries, both are for one entry. */

size_t ln_sync_payload_write(ln_sync_type type, const void *message, unsigned char *bytes);
bool ln_sync_payload_read(ln_sync_type type, void *message, const unsigned char *bytes, size_t length);

/* Defines ln_sync_hello_write(hello, bytes), ln_sync_hello_read(hello, bytes, length) and so on, with the types of
 * their structs. For a message of entries, the last argument of `read` is the number of the entry; `read` returns false
 * after the last entry. */
#define LN_PAYLOAD_STRUCT(number, lower, size)                                                                         \
    static inline size_t ln_sync_##lower##_write(const ln_sync_##lower *message, unsigned char *bytes) {               \
        return ln_sync_payload_write(number, message, bytes);                                                          \
    }                                                                                                                  \
    static inline bool ln_sync_##lower##_read(ln_sync_##lower *message, const unsigned char *bytes, size_t length) {   \
        return ln_sync_payload_read(number, message, bytes, length);                                                   \
    }
#define LN_PAYLOAD_TEXT LN_PAYLOAD_STRUCT
#define LN_PAYLOAD_ENTRIES(number, lower, size)                                                                        \
    static inline size_t ln_sync_##lower##_write(const ln_sync_##lower *message, unsigned char *bytes) {               \
        return ln_sync_payload_write(number, message, bytes);                                                          \
    }                                                                                                                  \
    static inline bool ln_sync_##lower##_read(ln_sync_##lower *message, const unsigned char *bytes, size_t length,     \
                                              size_t i) {                                                              \
        return length % (size) == 0 && i < length / (size) &&                                                          \
               ln_sync_payload_read(number, message, bytes + i * (size), size);                                        \
    }
#define LN_PAYLOAD_OWN(number, lower, size)
#define LN_PAYLOAD_NONE(number, lower, size)
#define LN_MESSAGE(number, name, lower, kind, flags, phase, senders, form, size, text)                                 \
    LN_PAYLOAD_##form(number, lower, size)
#include "sync/codec/messages.inc"
#undef LN_MESSAGE

#endif
