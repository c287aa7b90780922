/* worker_state.h - what worker_*.c share: tensors as the model has them, links, and the parts of tensors that the
 * server of a link has. */
#ifndef LN_SYNC_WORKER_STATE_H
#define LN_SYNC_WORKER_STATE_H

#include "sync/error.h"
#include "sync/manifest.h"
#include "sync/worker_core.h"

#define LN_SYNC_MS UINT64_C(1000000)

/* A variable that travels. */
typedef struct worker_tensor {
    linnet_tensor_info info; /* of the model; of a remote table name alone, until a manifest says more */
    unsigned char *data;     /* in the store; NULL: a remote table */
    bool pushed;             /* it has a gradient */
    bool averaged;           /* its value is pushed instead */
    bool sparse;             /* its gradient is row numbers and rows */
    bool remote;
    uint64_t covered; /* rows (of a scalar: 1) that servers have announced */
    uint64_t rows, row_elements, row_bytes;
    int32_t dtype;
    int output, ids_output; /* of the session whose gradients were pushed last; -1: not looked for yet */
    unsigned char *pulled;  /* keep_pulled: as it came */
    void *converted;        /* f16 and bf16 variables as f32, or their differences */
    const void *gradient;   /* of the step being pushed: [rows] or [count], f32 or f64 */
    int64_t *ids;           /* sparse: ascending, each once */
    uint64_t count;         /* of them */
    void *sums;             /* their rows */
    int64_t *looked_up;     /* row numbers as the session gave them */
    void *places;           /* to sort them */
    size_t converted_room, ids_room, sums_room, looked_up_room, places_room; /* bytes */
} worker_tensor;

/* The rows of a tensor that one server has. */
typedef struct worker_part {
    worker_tensor *tensor; /* NULL: a reader's model does not have it */
    const ln_sync_variable *variable;
    unsigned char *data; /* NULL: remote */
    uint64_t version;    /* of the value in the store; LN_SYNC_NONE: unknown */
    uint64_t arriving;   /* version of a message that has begun to come */
    uint64_t taken;      /* bytes of it */
    bool awaited;
    /* Rows asked for: */
    unsigned char *rows_at;
    const int64_t *rows_ids;
    uint64_t rows_bytes, rows_taken;
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
    ln_sync_stream *stream;
    worker_state state;
    bool ending;      /* to be closed: `why` says the reason */
    bool agreed;      /* once at least: shard, manifest and parts are known */
    bool held;        /* the server knows which tensors we hold */
    bool opened;      /* once at least */
    linnet_error why; /* of the last loss */
    uint64_t retry_at, lost_at, begun_at, heard_at, beat_at;
    int attempts; /* since it was open last */
    int failures; /* since it last finished something */
    uint32_t reconnects;
    unsigned char nonce[16], server_nonce[16];
    ln_sync_manifest *manifest;
    uint64_t digest[2]; /* of the TENSORS of this connection */
    uint32_t announced; /* tensors that are still to be announced */
    worker_part *parts;
    uint16_t shard;
    uint32_t number, encodings, chunk;
    uint64_t epoch, version, next;
    uint64_t last_step; /* of which there is an ACK, and what it says; LN_SYNC_NONE: none */
    int last_outcome;
    uint64_t heartbeat, lease; /* ns */
    /* Clocks: */
    uint64_t peer_clock, peer_clock_at;
    int64_t offset, delay;
    uint64_t delay_at;
    uint64_t server_clock[5];
    /* The work that is being done: */
    bool done;
    uint32_t asked;   /* tensors or lists of rows that were asked for */
    uint32_t missing; /* answers that are still to come */
    worker_message *messages;
    size_t message_room; /* bytes */
    uint32_t message_count, queued, released;
    uint64_t step; /* that is pushed */
    uint64_t base; /* version that the gradient was computed from */
    bool sent, committed, acked;
    bool skipped; /* acked only because the server had said that it is further on */
    bool ahead;   /* new values will come with the answer */
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
    WORKER_SAVE,
    WORKER_LEAVE
} worker_work;

struct ln_sync_worker {
    linnet_model *model;
    linnet_store *store;
    linnet_worker_config config; /* without strings */
    char name[16];
    ln_sync_host host;
    unsigned char job[16];
    uint64_t incarnation;
    uint32_t number; /* LN_SYNC_NO_WORKER: shard 0 is to say */
    int lead;        /* the link that is asked, until there is a number */
    int link_count, tensor_count;
    worker_link *links;
    worker_tensor *tensors;
    worker_tensor **by_name; /* sorted */
    linnet_error failure;    /* for good; code 0: none */
    bool leaving;
    /* The work that is being done: */
    worker_work work;
    uint64_t begun_at;
    bool interrupted; /* the call is to end: a signal has come */
    bool then_pull;
    const ln_sync_request *requests;
    int request_count;
    ln_sync_commit commit;
    /* Where it stands: */
    bool fresh;
    bool differs; /* local steps: `pulled` holds differences now */
    uint64_t step;
    uint64_t values_at; /* when the last values had come */
    int loss_output;
    uint32_t members;
    linnet_worker_info info; /* counts */
    linnet_link_info *link_infos;
    uint64_t bytes;
};

/* Memory that is counted. NULL: none left. */
void *ln_worker_memory(ln_sync_worker *worker, size_t size);
/* At least `need` bytes in *memory, whose content may be lost. */
bool ln_worker_room(ln_sync_worker *worker, void **memory, size_t *room, size_t need);

/* worker_model.c */
linnet_status ln_worker_read_model(ln_sync_worker *worker, linnet_error *error);
worker_tensor *ln_worker_find(const ln_sync_worker *worker, const char *name);
/* The link's manifest has come: its tensors are those of the model. Not OK: says which is not. */
linnet_status ln_worker_match(worker_link *link, linnet_error *error);
/* All manifests have come: together they have every tensor, once. */
linnet_status ln_worker_cover(ln_sync_worker *worker, linnet_error *error);

/* worker_agree.c */
void ln_worker_greet(worker_link *link);
ln_sync_refusal ln_worker_welcomed(worker_link *link, const ln_sync_welcome *welcome);
ln_sync_refusal ln_worker_announced(worker_link *link, const void *payload, size_t length);
void ln_worker_refused(worker_link *link, const ln_sync_refuse *refuse);

/* worker_core.c */
uint64_t ln_worker_clock(const ln_sync_worker *worker);
/* Begins anew what a connection that was lost had not brought to its end. */
void ln_worker_restart(worker_link *link);
/* Heartbeats, silence. */
void ln_worker_check_time(worker_link *link, uint64_t now);
/* Ends this connection, soon; fatal: and with it all of the worker. */
void ln_worker_end(worker_link *link, const linnet_error *why, bool fatal);
void ln_worker_opened(worker_link *link); /* the handshake is done: heartbeats begin, work goes on */
bool ln_worker_send(worker_link *link, uint8_t type, uint64_t step, const void *payload, size_t size);

/* worker_work.c */
void ln_worker_begin(ln_sync_worker *worker, worker_work work);
/* The step that no server has decided yet for this worker: shards that are further on wait for the others. */
uint64_t ln_worker_next(const ln_sync_worker *worker);

/* worker_pull.c: what a link does of the work; called again when a stream has room or something came. */
void ln_worker_ask(worker_link *link);
void ln_worker_ask_rows(worker_link *link);
void ln_worker_await(worker_link *link); /* every tensor will come or be the same */
ln_sync_refusal ln_worker_place(worker_link *link, const ln_sync_header *header, void **destination);
ln_sync_refusal ln_worker_data(worker_link *link, const ln_sync_header *header);
ln_sync_refusal ln_worker_same(worker_link *link, const void *payload, size_t length);
void ln_worker_pulled(ln_sync_worker *worker);

/* worker_push.c */
void ln_worker_push(worker_link *link);
void ln_worker_released(worker_link *link);
void ln_worker_pushed(ln_sync_worker *worker);
ln_sync_refusal ln_worker_acked(worker_link *link, uint64_t step, const ln_sync_ack *ack);

/* worker_gradient.c: the gradients of a step, from a session's outputs or as differences; and their messages. */
linnet_status ln_worker_collect(ln_sync_worker *worker, linnet_session *session, linnet_error *error);
linnet_status ln_worker_differ(ln_sync_worker *worker, linnet_error *error);
linnet_status ln_worker_encode(worker_link *link, linnet_error *error);

#endif
