/* worker_state.h - shared by worker_*.c: the model's tensors, the links to servers, and the part of each tensor that a
 * link's server has. */
#ifndef LN_SYNC_WORKER_STATE_H
#define LN_SYNC_WORKER_STATE_H

#include "net/error.h"
#include "sync/codec/manifest.h"
#include "sync/common/host.h"
#include "sync/worker/worker.h"

/* A shared variable. */
struct worker_tensor {
    linnet_tensor_info info; /* from the model; for a remote table only the name, until a manifest has the rest */
    unsigned char *data;     /* value in the store; NULL: a remote table */
    bool pushed;             /* its gradient is pushed */
    bool averaged;           /* its value is pushed instead of a gradient */
    bool sparse;             /* its gradient has row numbers and rows */
    bool remote;
    uint64_t covered; /* rows that servers have announced (1 for a scalar) */
    uint64_t rows, row_elements, row_bytes;
    int32_t dtype;
    int output, ids_output; /* output numbers in the session whose gradients were pushed last; -1: not known yet */
    unsigned char *pulled;  /* with keep_pulled: the value as received */
    void *converted;        /* values of f16 and bf16 variables as f32, or differences of these values */
    const void *gradient;   /* gradient of the current step: [rows] or [count], f32 or f64 */
    int64_t *ids;           /* sparse: row numbers, ascending and unique */
    uint64_t count;         /* number of rows in `ids` */
    void *sums;             /* sums of the rows in `ids` */
    int64_t *looked_up;     /* row numbers as the session returned them */
    void *places;           /* scratch for sorting */
    size_t converted_room, ids_room, sums_room, looked_up_room, places_room; /* bytes */
};

/* The rows of a tensor that one server has. */
typedef struct worker_part {
    worker_tensor *tensor; /* NULL: the tensor is not in a reader's model */
    const ln_sync_variable *variable;
    unsigned char *data; /* value in the store; NULL: remote table */
    uint64_t version;    /* version of the value in the store; LN_SYNC_NONE: unknown */
    uint64_t arriving;   /* version of a message that is being received */
    uint64_t taken;      /* bytes received of that message */
    uint8_t encoding;    /* of that message */
    bool awaited;
    /* Requested rows: */
    unsigned char *rows_at;
    uint64_t rows_bytes, rows_taken;
    uint8_t rows_encoding;
    bool rows_awaited;
    /* Compression: */
    float *residual;
    void *encoded;
    size_t encoded_room;
} worker_part;

/* A message of a push. */
typedef struct worker_message {
    uint32_t tensor;
    uint8_t type, encoding;
    uint16_t flags;
    const void *data;
    uint64_t size;
} worker_message;

typedef enum worker_state { WORKER_APART, WORKER_GREETING, WORKER_OPEN } worker_state;

struct worker_link {
    ln_sync_worker *worker;
    int index;
    char *address;
    ln_net_stream *stream;
    worker_state state;
    bool ending;      /* to be closed for the reason `why` */
    bool agreed;      /* a handshake was completed: shard, manifest and parts are known */
    bool held;        /* the server knows which tensors this worker holds */
    bool opened;      /* the link was open at least once */
    linnet_error why; /* reason of the last loss */
    uint64_t retry_at, lost_at, begun_at, heard_at, beat_at;
    int attempts; /* number of attempts since the link was last open */
    int told;     /* the refusal that the log was told since then, or 0 */
    int failures; /* number of failures since the worker last completed a task */
    uint32_t reconnects;
    unsigned char nonce[16], server_nonce[16];
    ln_sync_manifest *manifest;
    uint64_t digest[2]; /* digest of this connection's TENSORS */
    uint32_t announced; /* number of tensors still to be announced */
    worker_part *parts;
    uint16_t shard;
    uint32_t number, encodings, chunk;
    uint64_t epoch, version, next;
    uint64_t last_step; /* the step of the last ACK, and the outcome of this step; LN_SYNC_NONE: no ACK yet */
    int last_outcome;
    uint64_t heartbeat, lease; /* ns */
    /* Clocks: */
    uint64_t peer_clock, peer_clock_at;
    int64_t offset, delay;
    uint64_t delay_at;
    uint64_t server_clock[5];
    /* The current work: */
    bool done;
    uint32_t asked;   /* number of requested tensors or lists of rows */
    uint32_t missing; /* number of answers that are still missing */
    worker_message *messages;
    size_t message_room; /* bytes */
    uint32_t message_count, queued, released;
    uint64_t step; /* the step being pushed */
    uint64_t base; /* version from which the gradient was computed */
    bool sent, committed, acked;
    bool skipped; /* counts as acknowledged only because the server is further ahead */
    bool ahead;   /* new values will follow the answer */
    linnet_error unsaved;
    int outcome;
    uint64_t staleness;
    uint64_t handed_at;
};

struct ln_sync_worker {
    linnet_model *model;
    linnet_store *store;
    linnet_worker_config config; /* without strings */
    linnet_link_config link;     /* without strings */
    char name[16];
    ln_sync_host host;
    unsigned char job[16];
    uint64_t incarnation;
    uint32_t number; /* LN_NET_NO_WORKER: shard 0 will assign it */
    int lead;        /* the only link that connects until this worker has a number */
    int link_count, tensor_count;
    worker_link *links;
    worker_tensor *tensors;
    worker_tensor **by_name; /* sorted */
    linnet_error failure;    /* permanent failure; code 0: none */
    bool leaving;
    /* The current work: */
    worker_work work;
    uint64_t begun_at;
    bool interrupted; /* a signal has come, so the call is to end */
    bool then_pull;
    const ln_sync_request *requests;
    int request_count;
    ln_sync_commit commit;
    struct {
        const worker_tensor *tensor;
        const unsigned char *data;
        uint64_t number; /* of this process's puts, from 1 */
    } put;
    /* State of the values: */
    bool fresh;
    bool differs; /* `pulled` holds differences, because of local steps */
    uint64_t step;
    uint64_t values_at; /* time at which the last values were complete */
    int loss_output;
    uint32_t members;
    linnet_worker_info info; /* counts */
    uint64_t bytes;
};

#endif
