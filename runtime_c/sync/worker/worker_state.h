/* worker_state.h - shared by worker_*.c: the model's tensors, the links to servers, and the part of each tensor that a
 * link's server has. */
#ifndef LN_SYNC_WORKER_STATE_H
#define LN_SYNC_WORKER_STATE_H

#include "net/error.h"
#include "sync/codec/manifest.h"
#include "sync/worker/worker_core.h"

/* A shared variable. */
typedef struct worker_tensor {
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
} worker_tensor;

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

typedef struct worker_link {
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
} worker_link;

typedef enum worker_work {
    WORKER_IDLE,
    WORKER_AGREE,
    WORKER_PULL,
    WORKER_ROWS,
    WORKER_PUSH,
    WORKER_PUT,
    WORKER_SAVE,
    WORKER_LEAVE
} worker_work;

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

/* Allocates memory and counts it. Returns NULL if out of memory. */
void *ln_worker_memory(ln_sync_worker *worker, size_t size);
/* Makes *memory at least `need` bytes long. The old contents may be lost. */
bool ln_worker_room(ln_sync_worker *worker, void **memory, size_t *room, size_t need);

/* The parts of a worker, from below: each calls only those that stand before it here, and worker_work.c and
 * worker_core.c call all of them. */

/* worker_model.c */
linnet_status ln_worker_read_model(ln_sync_worker *worker, linnet_error *error);
worker_tensor *ln_worker_find(const ln_sync_worker *worker, const char *name);
/* Checks the manifest of a link: its tensors must be those of the model. Not OK: says which tensor differs. */
linnet_status ln_worker_match(worker_link *link, linnet_error *error);
/* Checks all manifests: together they must contain every tensor exactly once. */
linnet_status ln_worker_cover(ln_sync_worker *worker, linnet_error *error);

/* worker_links.c */
uint64_t ln_worker_clock(const ln_sync_worker *worker);
bool ln_worker_send(worker_link *link, uint8_t type, uint64_t step, const void *payload, size_t size);
/* Ends this connection soon. With `fatal`, ends the whole worker. */
void ln_worker_end(worker_link *link, const linnet_error *why, bool fatal);
/* Restarts the work that a lost connection had not finished. */
void ln_worker_restart(worker_link *link);
void ln_worker_opened(worker_link *link); /* the handshake is done: begins heartbeats and continues the work */
/* Sends heartbeats and notices silent servers. */
void ln_worker_check_time(worker_link *link, uint64_t now);
void ln_worker_begin(ln_sync_worker *worker, worker_work work);
/* Returns the first step that no server has decided for this worker. Shards that are further ahead wait for the other
 * shards. */
uint64_t ln_worker_next(const ln_sync_worker *worker);

/* worker_agree.c */
void ln_worker_greet(worker_link *link);

/* worker_pull.c: a link's share of the work; called again when a stream has room or something has arrived. */
void ln_worker_ask(worker_link *link);
void ln_worker_ask_rows(worker_link *link);
void ln_worker_await(worker_link *link); /* for every tensor, the value or a report that it is unchanged will arrive */
void ln_worker_pulled(ln_sync_worker *worker);

/* worker_gradient.c: the gradients of a step, from a session's outputs or as differences, and their messages. */
linnet_status ln_worker_collect(ln_sync_worker *worker, linnet_session *session, linnet_error *error);
linnet_status ln_worker_differ(ln_sync_worker *worker, linnet_error *error);
linnet_status ln_worker_encode(worker_link *link, linnet_error *error);

/* worker_put.c */
void ln_worker_put(worker_link *link);
linnet_status ln_worker_was_put(ln_sync_worker *worker, linnet_error *error);

/* worker_push.c */
void ln_worker_push(worker_link *link);
void ln_worker_released(worker_link *link);
void ln_worker_pushed(ln_sync_worker *worker);

#endif
