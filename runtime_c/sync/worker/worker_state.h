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
    linnet_tensor_info info; /* from the model; for a remote table, only the name is set until a manifest has come */
    unsigned char *data;     /* the value in the store; NULL: a remote table */
    bool pushed;             /* its gradient is pushed */
    bool averaged;           /* its value is pushed instead of a gradient */
    bool sparse;             /* its gradient has row numbers and rows */
    bool remote;             /* a table that only servers have; the worker pulls rows of it */
    uint64_t covered;        /* rows that servers have announced (1 for a scalar) */
    uint64_t rows, row_elements, row_bytes;
    int32_t dtype;
    int output, ids_output; /* output numbers in the session whose gradients were pushed last; -1: not known yet */
    unsigned char *pulled;  /* with config.keep_pulled: a copy of the value as received; otherwise NULL */
    void *converted;        /* values of f16 and bf16 variables as f32, or differences of these values */
    const void *gradient; /* gradient of the current step, f32 or f64: all rows, or for a sparse tensor `count` rows */
    int64_t *ids;         /* of a sparse tensor: row numbers, ascending and unique */
    uint64_t count;       /* number of rows in `ids` */
    void *sums;           /* sums of the rows in `ids` */
    int64_t *looked_up;   /* the row numbers that the session returned, as i64 */
    void *places;         /* scratch for sorting */
    size_t converted_room, ids_room, sums_room, looked_up_room, places_room; /* bytes */
};

/* The rows of a tensor that one server has. */
typedef struct worker_part {
    worker_tensor *tensor; /* NULL: the tensor is not in a reader's model */
    const ln_sync_variable *variable;
    unsigned char *data; /* the part's value in the store; NULL: a remote table */
    uint64_t version;    /* version of the value in the store; LN_SYNC_NONE: unknown */
    uint64_t arriving;   /* version of a message that is being received */
    uint64_t taken;      /* bytes received of that message */
    uint8_t encoding;    /* encoding of that message */
    bool awaited;        /* an answer about the value is still missing */
    /* Requested rows: */
    unsigned char *rows_at;          /* memory of the caller for them */
    uint64_t rows_bytes, rows_taken; /* bytes of the rows as f32; bytes of the message that were received */
    uint8_t rows_encoding;
    bool rows_awaited;
    /* Compression: */
    float *residual; /* error feedback (compress.h); NULL: none yet */
    void *encoded;   /* the message; it must not change until the stream has released it */
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

/* The states of a link: no connection, in the handshake, open. */
typedef enum worker_state { WORKER_APART, WORKER_GREETING, WORKER_OPEN } worker_state;

struct worker_link {
    ln_sync_worker *worker;
    int index;
    char *address;
    ln_net_stream *stream;
    worker_state state;
    bool ending;      /* the connection is to be closed, for the reason `why` */
    bool agreed;      /* a handshake was completed, so shard, manifest and parts are known */
    bool held;        /* the server knows which tensors this worker holds */
    bool opened;      /* the link was open at least once */
    linnet_error why; /* reason of the last loss */
    /* Times: of the next attempt to connect, of the loss, of the greeting, of the last frame, of the last heartbeat. */
    uint64_t retry_at, lost_at, begun_at, heard_at, beat_at;
    int attempts; /* number of attempts since the link was last open */
    int told;     /* the refusal that was logged since the link was last open; 0: none */
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
    bool done;        /* the link's part of the task is finished */
    uint32_t asked;   /* number of requested tensors or lists of rows */
    uint32_t missing; /* number of answers that are still missing */
    worker_message *messages;
    size_t message_room; /* bytes */
    /* Numbers of messages: all; those given to the stream; those that it has released. */
    uint32_t message_count, queued, released;
    uint64_t step; /* the step being pushed */
    uint64_t base; /* version from which the gradient was computed */
    /* sent: PUT, SNAPSHOT or BYE was queued. committed: COMMIT was queued. acked: the ACK has come. */
    bool sent, committed, acked;
    bool skipped;         /* counts as acknowledged only because the server is further ahead */
    bool ahead;           /* the server will send new values after the ACK */
    linnet_error unsaved; /* why the server could not make a snapshot; code 0: it could */
    int outcome;
    uint64_t staleness;
    uint64_t handed_at;
};

struct ln_sync_worker {
    linnet_model *model;
    linnet_store *store;
    linnet_worker_config config; /* its pointers to strings are not valid */
    linnet_link_config link;     /* its pointers to strings are not valid either */
    char name[16];
    ln_sync_host host;
    unsigned char job[16];
    uint64_t incarnation;
    uint32_t number; /* LN_NET_NO_WORKER: shard 0 will assign it */
    int lead;        /* the only link that connects until this worker has a number */
    int link_count, tensor_count;
    worker_link *links;
    worker_tensor *tensors;
    worker_tensor **by_name; /* the tensors, sorted by name */
    linnet_error failure;    /* why the worker has failed for good; code 0: it works */
    bool leaving;            /* the worker has said BYE, so no link connects again */
    /* The current work: */
    worker_work work;
    uint64_t begun_at;
    bool interrupted; /* a signal has come, so the call is to end */
    bool then_pull;   /* a push also pulls new values */
    const ln_sync_request *requests;
    int request_count;
    ln_sync_commit commit;
    struct {
        const worker_tensor *tensor;
        const unsigned char *data;
        uint64_t number; /* number of the put, counted from 1 in this process */
    } put;
    /* State of the values: */
    bool fresh;         /* the result of ln_sync_worker_fresh */
    bool differs;       /* the tensors' `pulled` are differences already, because a push of local steps has begun */
    uint64_t step;      /* the step that is computed or pushed */
    uint64_t values_at; /* time at which the last values were complete */
    int loss_output;    /* number of the session's output "loss"; -1: not known yet */
    uint32_t members;   /* number of members according to the last ACK */
    linnet_worker_info info; /* the counts of ln_sync_worker_get_info */
    uint64_t bytes;          /* memory that the worker has allocated */
};

#endif
