/* linnet_sync.h - the public C API of liblinnet_sync: training on many machines, which share variables.
 * A second library on top of linnet.h, with the same conventions. docs/protocol.md describes its protocol.
 *
 *  server   owns parameters and optimizer state, and runs the file's `update/...` signatures on pushed gradients
 *  worker   pulls parameters into its store, runs the file's `grad` signature on its data, pushes the gradients
 *  ring     sums arrays over peers, without a server
 *
 * linnet.sync.signatures (Python) makes the files for server and worker. Addresses are "host:port", "[::1]:port",
 * ":port" (loopback), "unix:PATH", or "shm:PATH" (shared memory, found through a Unix socket); with port 0 the system
 * chooses a port. Every function that communicates can also fail with: UNREACHABLE, REFUSED, TIMED_OUT, PROTOCOL_ERROR,
 * NOT_AUTHENTICATED, SUPERSEDED, CONNECTION_LOST. Field `tensor` of the error record then holds the address. */
#ifndef LINNET_SYNC_H
#define LINNET_SYNC_H

#include "linnet.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct linnet_server linnet_server;
typedef struct linnet_worker linnet_worker;

/* "0.1.0", the version of this library. Programs that use both libraries compare it with linnet_version(). */
LINNET_API const char *linnet_sync_version(void);

/* ---- links: how to reach the peer; every config below points to one ------------------------------------------ */

/* Encryption uses TLS 1.3 from OpenSSL's libssl (1.1.1 or later). It is loaded only if a key or certificate is given.
 * Strings need to live only during the call that takes the config. */
typedef struct linnet_link_config {
    size_t struct_size;
    const char *key_file; /* file with the pre-shared key: 32 bytes or more, raw or hexadecimal, not all zeros; only the
                             owner of the file may be able to read it */
    const char *certificate; /* PEM file with this side's certificates */
    const char *private_key; /* PEM file with the key of `certificate` */
    const char *authority;   /* PEM file with the certificates to trust; each side verifies the other */
    const char *libssl;      /* path of the library; NULL: the system's */
    bool insecure; /* true: connections to other machines need no key; false: only connections within this machine
                      (loopback, local sockets) need no key */
    int32_t heartbeat_ms; /* time between heartbeats; 0: a worker uses the server's value, and a server uses a third of
                             its lease_ms (5000 if lease_ms is 0) */
    int32_t lease_ms;     /* a peer that is silent for this long counts as lost; 0: three heartbeats */
    int32_t chunk;        /* largest frame in bytes, 4096 to 4 MiB; 0: 256 KiB */
    const char *server_name; /* for the side that connects, if certificates are used: the DNS name or IP address that
                                the server's certificate must contain; NULL: the host of the address, or localhost if
                                the address has no host */
} linnet_link_config;

LINNET_API void linnet_link_config_init_sized(linnet_link_config *config, size_t size);
static inline void linnet_link_config_init(linnet_link_config *config) {
    linnet_link_config_init_sized(config, sizeof *config);
}

/* ---- server ------------------------------------------------------------------------------------------------------ */

/* How steps of several workers become updates. Workers belong to groups; each group has a barrier. */
typedef enum linnet_sync_mode {
    LINNET_SYNC_SYNCHRONOUS = 0, /* an update waits for all members of the group, or for `quorum` of them */
    LINNET_SYNC_ASYNCHRONOUS = 1 /* every push is an update; a worker may be `staleness` steps ahead of the slowest */
} linnet_sync_mode;

typedef enum linnet_sync_durability {
    LINNET_SYNC_JOURNAL = 0, /* updates are written to the folder's journal before they are acknowledged; without a
                                folder there is no journal */
    LINNET_SYNC_FSYNC = 1,   /* like JOURNAL, and updates are acknowledged only when the journal is on the disk */
    LINNET_SYNC_VOLATILE = 2 /* only snapshots are kept */
} linnet_sync_durability;

typedef struct linnet_server_config {
    size_t struct_size;
    const linnet_link_config *link; /* NULL: the defaults */
    const char *const *listen;      /* addresses; NULL: ":0" */
    int32_t listen_count;
    int32_t mode;    /* linnet_sync_mode */
    int32_t workers; /* number of members that a group needs before its steps begin; 0 means 1 */
    int32_t quorum;  /* number of pushes that close a step of a group; later pushes are dropped; 0: all members */
    bool elastic; /* true: steps continue without a lost worker; false: steps wait until `workers` members are connected
                     again */
    int32_t staleness; /* ASYNCHRONOUS: number of closed steps by which a worker may be ahead of the slowest; -1 (set by
                          linnet_server_config_init): no limit */
    const char *folder; /* folder for snapshots, journal and epoch; created if missing; NULL: nothing is kept on disk */
    int32_t durability; /* linnet_sync_durability */
    int32_t save_every; /* number of updates between two snapshots; 0: snapshots only on request and at the end */
    int64_t batch;      /* examples in a global batch; each worker gets a share that fits its speed; 0: no shares */
    uint64_t max_bytes; /* memory for gradients in flight; 0: 1 GiB */
    int32_t max_workers; /* largest number of connections; 0: 4096 */
    bool plain; /* true: neither gradients nor values are compressed; false: each worker gets the compression that it
                   asks for */
    const char *metrics;               /* address for Prometheus (HTTP, text format); NULL: none */
    int32_t threads;                   /* threads that compute updates; 0: linnet_default_threads() */
    const linnet_allocator *allocator; /* NULL: malloc */
    bool repair; /* true: if the journal is damaged, the server keeps a copy of it, continues from the intact part, and
                    refuses workers that have seen later updates; false: a damaged journal is an error */
} linnet_server_config;

LINNET_API void linnet_server_config_init_sized(linnet_server_config *config, size_t size);
static inline void linnet_server_config_init(linnet_server_config *config) {
    linnet_server_config_init_sized(config, sizeof *config);
}
/* Creates a server for the variables that the model's `update/...` signatures change. The server already listens when
 * this function returns. If the folder holds a snapshot of this model, the server continues from there. If `store` is
 * NULL, the server makes its own store. The server keeps the model and the store alive. Errors: UNKNOWN_NAME (no update
 * signature), OTHER_MODEL and CORRUPT (a file in the folder; the error names the file and the offset; see `repair`),
 * SUPERSEDED (another server uses the folder), WRITE_FAILED, OUT_OF_MEMORY, INVALID_ARGUMENT, and the errors of
 * linnet_plan_create and linnet_session_create. */
LINNET_API linnet_status linnet_server_create(linnet_model *model, linnet_store *store,
                                              const linnet_server_config *config, linnet_server **out,
                                              linnet_error *error);
/* Returns the i-th address that the server listens on, with the port that the system chose. i = -1 means the address of
 * the metrics. Returns NULL if there is no such address. */
LINNET_API const char *linnet_server_address(const linnet_server *server, int i);
/* Serves in the calling thread until linnet_server_stop or, if `updates` > 0, until this many updates have been made
 * since creation. Saves a snapshot at the end. A bad or lost connection does not affect the other connections. Errors:
 * SUPERSEDED, CORRUPT (a worker knows of a step that the folder has lost), WRITE_FAILED, and those of linnet_run. */
LINNET_API linnet_status linnet_server_run(linnet_server *server, uint64_t updates, linnet_error *error);
typedef enum linnet_sync_stop {
    LINNET_SYNC_PAUSE = 0,  /* workers wait for a server to return */
    LINNET_SYNC_END_JOB = 1 /* workers get JOB_OVER, as they do when linnet_server_run has made all its `updates` */
} linnet_sync_stop;

/* Makes linnet_server_run return soon. Any thread or signal handler may call this function. */
LINNET_API void linnet_server_stop(linnet_server *server, linnet_sync_stop how);
/* Returns the store of the variables, which the server owns. If the store is read while the server runs, the reader
 * sees the state between two updates. */
LINNET_API linnet_store *linnet_server_store(linnet_server *server);
/* Writes a snapshot to the folder now, atomically. Any thread may call this function. Errors: WRITE_FAILED,
 * INVALID_ARGUMENT (no folder). */
LINNET_API linnet_status linnet_server_save(linnet_server *server, linnet_error *error);
/* Writes the server's state as JSON (members, steps, versions, staleness, bytes, times). Returns the length of the
 * whole text, like snprintf. Any thread may call this function. */
LINNET_API size_t linnet_server_status(linnet_server *server, char *text, size_t size);
/* Closes the connections and sockets and frees the server, which must not be running. */
LINNET_API void linnet_server_free(linnet_server *server);

/* ---- worker ------------------------------------------------------------------------------------------------------ */

/* How dense f32 gradients of 1024 or more elements are encoded. The error that an encoding makes is added to the next
 * gradient (error feedback). The feedback takes as much memory as the gradients. Rows of sparse gradients can also be
 * sent as F16, BF16 or I8, but without feedback. */
typedef enum linnet_sync_compression {
    LINNET_SYNC_PLAIN = 0,
    LINNET_SYNC_F16 = 1,
    LINNET_SYNC_BF16 = 2,
    LINNET_SYNC_I8 = 3,
    LINNET_SYNC_TOP_K = 4,  /* the elements of largest magnitude; `fraction` says how many */
    LINNET_SYNC_ONE_BIT = 5 /* signs, and two means per block */
} linnet_sync_compression;

typedef struct linnet_worker_config {
    size_t struct_size;
    const linnet_link_config *link; /* NULL: the defaults */
    int32_t worker; /* number of this worker, the same after a restart; -1 (set by linnet_worker_config_init): the
                       server chooses one */
    int32_t group;  /* number of the worker's group; workers of a group are synchronous, but groups do not wait for each
                       other */
    int32_t compression; /* linnet_sync_compression */
    double fraction;     /* TOP_K: which fraction of a tensor's elements is sent, at most 1; 0 means 0.01 */
    bool read_only;      /* the worker only pulls. It is not a member of the group, so no step waits for it */
    bool keep_pulled;    /* the worker keeps a copy of the pulled values, so that linnet_worker_push works without a
                            session; the copy takes as much memory as the values */
    int32_t lost_ms;     /* a call fails when a server has been unreachable for this time; 0: 60 000 */
    int32_t timeout_ms;  /* longest time that a call takes, including the wait for slower workers; 0: no limit */
    bool (*interrupted)(
        void *context); /* called when a signal arrives while a call waits; if it returns true, the call ends with
                           TIMED_OUT. While linnet_worker_step computes, the function is used as linnet_run_config.poll;
                           if it returns true, the call ends with CANCELLED. NULL: signals do not end calls */
    void *interrupted_context;
    const char *name;         /* a name for people, at most 15 bytes of UTF-8; NULL: "" */
    int32_t pull_compression; /* PLAIN, F16 or BF16 (linnet_sync_compression): how servers send f32 variables of 1024 or
                                 more elements, and rows of such tables. With F16 or BF16, the store has rounded values;
                                 the servers keep f32 */
    bool writer;    /* the worker only pulls and puts values (linnet_worker_put). It is not a member of the group, so no
                       step waits for it. Members may also put values, without this flag */
    linnet_log log; /* receives a warning when a call begins to wait for a server that refuses the worker for now, for
                       example because another process has the worker's number. Each reason is told once, until the
                       server accepts the worker. Also called in the thread that sends heartbeats. The callback must not
                       call the library. NULL: no messages */
    void *log_context;
} linnet_worker_config;

LINNET_API void linnet_worker_config_init_sized(linnet_worker_config *config, size_t size);
static inline void linnet_worker_config_init(linnet_worker_config *config) {
    linnet_worker_config_init_sized(config, sizeof *config);
}
/* Connects to the servers of all shards, given in any order, and agrees with them on the tensors. These are the
 * variables for which `grad` has gradients, and the variables that the metadata sync.average and sync.read name.
 * `store` must belong to `model`; the worker uses both until the worker is freed. A thread sends heartbeats between
 * calls. `config` may be NULL. Only one thread at a time may use a worker.
 * Errors: OTHER_MODEL (the servers have
 * another file; the error names the variable that differs), INVALID_ARGUMENT (a shard is given twice or is missing),
 * UNKNOWN_NAME (a variable that no server has), OUT_OF_MEMORY, THREAD_FAILED. */
LINNET_API linnet_status linnet_worker_create(linnet_model *model, linnet_store *store, const char *const *servers,
                                              int32_t server_count, const linnet_worker_config *config,
                                              linnet_worker **out, linnet_error *error);
/* Updates the store's variables to the servers' newest values. Unchanged variables are not sent. No session of the
 * store may run during the call. If the call fails, some variables may be newer than others, so pull again before the
 * next run. */
LINNET_API linnet_status linnet_worker_pull(linnet_worker *worker, linnet_error *error);
/* Pulls rows of a table. The table may be too large for this machine. `rows` has `count` row numbers in [0, rows of the
 * table), in any order, with or without repeats. The rows are written to `data` [count, ...] in the table's dtype;
 * `bytes` is the exact size of `data`. Errors: UNKNOWN_NAME, INDEX_OUT_OF_RANGE, WRONG_SHAPE (bytes). */
LINNET_API linnet_status linnet_worker_pull_rows(linnet_worker *worker, const char *table, const int64_t *rows,
                                                 size_t count, void *data, size_t bytes, linnet_error *error);
/* Pushes the gradients that the last run of `session` (signature `grad`) left in the session's outputs. Returns when
 * all servers have applied or dropped the gradients; linnet_worker_info.outcome says which of the two happened. If a
 * connection is lost, the worker connects again and repeats the push; the push still counts once. `weight` > 0 is the
 * number of examples from which the gradient was computed.
 * With `session` NULL, the worker pushes, for each variable,
 * the pulled value minus the current value in the store. This is how federated averaging pushes local steps, and it
 * needs keep_pulled. Errors: UNKNOWN_NAME (an output is missing), INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_worker_push(linnet_worker *worker, linnet_session *session, double weight,
                                            linnet_error *error);
/* Does one step: pulls the newest values, runs `session` (signature `grad`, its inputs filled by the caller), and
 * pushes the gradients. This takes one round trip, because the answer to a push brings the values for the next step.
 * `ids` is NULL for a model without remote tables. For a model with remote tables, it is a session of signature `ids`
 * with the same inputs. This session is run first, to find the rows to pull into the inputs `rows/<table>`.
 * Errors: those of linnet_worker_pull, linnet_worker_push and linnet_run. */
LINNET_API linnet_status linnet_worker_step(linnet_worker *worker, linnet_session *session, linnet_session *ids,
                                            double weight, linnet_error *error);

/* Sets the value of a variable at its servers. The variable must be one that workers pull and push. `data` has `bytes`
 * bytes: the whole value in the variable's dtype. Returns when every server that has a part of the variable has written
 * its part to the journal and stored it. If a connection is lost, the worker connects again, and the value is still
 * stored only once. A server stores the value between two updates. If a step is open at that time, the gradients of
 * this step were computed from the old value, but are applied to the new one. The state of the optimizer does not
 * change. The store gets the value with the next pull. Errors: UNKNOWN_NAME, WRONG_SHAPE (bytes), INVALID_ARGUMENT (NaN
 * or infinity; a variable that only updates change; a worker with read_only). */
LINNET_API linnet_status linnet_worker_put(linnet_worker *worker, const char *name, const void *data, size_t bytes,
                                           linnet_error *error);

typedef enum linnet_sync_outcome {
    LINNET_SYNC_APPLIED = 0,
    LINNET_SYNC_LATE = 1,      /* dropped: the step was closed without this push */
    LINNET_SYNC_NOT_FINITE = 2 /* dropped: the push, the sum of the step's pushes, or the update has NaN or infinity */
} linnet_sync_outcome;

/* One server, as a worker sees it. */
typedef struct linnet_link_info {
    size_t struct_size;
    const char *address;
    int32_t shard;
    bool connected;    /* false: the connection is lost, and the worker tries to connect again */
    uint64_t version;  /* number of updates to the server's variables that this worker knows of */
    uint64_t epoch;    /* how often a server was started on this state */
    uint64_t sent;     /* bytes sent */
    uint64_t received; /* bytes received */
    uint32_t reconnects;
    int64_t offset_ns; /* the server's clock minus ours, from the exchange with the shortest delay (RFC 5905, section 8)
                        */
    int64_t delay_ns;  /* round-trip delay of that exchange; -1: not measured yet */
    uint64_t clock_ns[5]; /* the server's clock, from its last answer: when the first and the last push of the step were
                             complete, when the update began and ended, when the answer was made */
} linnet_link_info;

LINNET_API void linnet_link_info_init_sized(linnet_link_info *info, size_t size);
static inline void linnet_link_info_init(linnet_link_info *info) { linnet_link_info_init_sized(info, sizeof *info); }

typedef struct linnet_worker_info {
    size_t struct_size;
    int32_t worker;      /* number of this worker */
    int32_t outcome;     /* linnet_sync_outcome of the last push */
    int32_t compression; /* linnet_sync_compression that all servers agreed to */
    uint64_t step;       /* number of the next step */
    uint64_t version;    /* version of the variables: the lowest of all shards */
    uint64_t staleness; /* staleness of the last push: number of updates by others since the version from which the push
                           was computed. If shards differ, this is the highest number */
    uint64_t applied, late, not_finite;    /* pushes so far, by outcome */
    uint64_t sent, received;               /* bytes so far */
    uint64_t tensors_pulled, tensors_same; /* tensors received so far, and tensors that had not changed */
    uint64_t compute_ns;                   /* last step: from the arrival of the values to the start of the push */
    uint64_t push_ns;                      /* last step: from the start of the push until its last byte was sent */
    uint64_t wait_ns;    /* last step: from the last byte sent to the answer; includes waiting for others */
    uint64_t pull_ns;    /* duration of the last pull */
    uint64_t decided_ns; /* this machine's monotonic clock when the last push was decided */
    uint64_t first_example, examples, batch; /* this worker's share of the next global batch; batch 0: no shares */
    uint32_t members;                        /* workers in the group at the last answer */
    uint64_t bytes;                          /* memory that the worker holds, without the store */
    int32_t link_count;                      /* number of servers */
    double loss;        /* mean loss of all workers in the last push's step, with the weights of their gradients */
    double loss_weight; /* sum of the weights in `loss`; 0: no worker has an output `loss` */
    int32_t pull_compression; /* linnet_sync_compression of values that all servers agreed to */
} linnet_worker_info;

LINNET_API void linnet_worker_info_init_sized(linnet_worker_info *info, size_t size);
static inline void linnet_worker_info_init(linnet_worker_info *info) {
    linnet_worker_info_init_sized(info, sizeof *info);
}
LINNET_API linnet_status linnet_worker_get_info(linnet_worker *worker, linnet_worker_info *info);
/* Describes the i-th server, in the order of linnet_worker_create. Errors: INVALID_ARGUMENT (no such server). */
LINNET_API linnet_status linnet_worker_get_link(linnet_worker *worker, int i, linnet_link_info *info);
/* Makes every server write a snapshot, and waits for all of them. Errors: WRITE_FAILED, with the server's message. */
LINNET_API linnet_status linnet_worker_save(linnet_worker *worker, linnet_error *error);
/* Leaves the group, so that no step waits for this worker any more, and frees the worker. Takes at most a second. */
LINNET_API void linnet_worker_free(linnet_worker *worker);

/* Gets the status of the server at `address` as JSON, without being a worker. *needed is the length of the whole text;
 * like snprintf, the function writes at most `size` bytes of it. `link` may be NULL. */
LINNET_API linnet_status linnet_sync_status(const char *address, const linnet_link_config *link, char *text,
                                            size_t size, size_t *needed, linnet_error *error);

/* ---- ring: sums over peers, without a server --------------------------------------------------------------------- */

typedef struct linnet_ring linnet_ring;

typedef enum linnet_ring_operation { LINNET_RING_SUM = 0, LINNET_RING_MEAN = 1 } linnet_ring_operation;

typedef struct linnet_ring_config {
    size_t struct_size;
    const linnet_link_config *link; /* NULL: the defaults. A ring ignores heartbeat_ms and lease_ms. `chunk` is the size
                                       of a piece in bytes; 0: 256 KiB */
    const char *address; /* address where rank 0 waits for the other ranks; the same at all ranks; port must not be 0 */
    const char *listen; /* address where this rank's neighbour connects; NULL: the host of `address`, on a port that the
                           system chooses */
    int32_t rank, size; /* number of this process in [0, size), and number of processes; size 0 means 1 */
    int32_t timeout_ms; /* how long to wait for other ranks to connect, and for a silent neighbour; 0: 60 000 */
} linnet_ring_config;

LINNET_API void linnet_ring_config_init_sized(linnet_ring_config *config, size_t size);
static inline void linnet_ring_config_init(linnet_ring_config *config) {
    linnet_ring_config_init_sized(config, sizeof *config);
}
/* Waits until all `size` ranks have connected, and connects them as a ring. Only one thread at a time may use a ring.
 * Errors name the rank concerned, which is also in the record's op_index. TIMED_OUT: some ranks did not connect;
 * REFUSED: another process has this rank, or the ring has another size. */
LINNET_API linnet_status linnet_ring_create(const linnet_ring_config *config, linnet_ring **out, linnet_error *error);
/* Replaces data [count], of dtype F32, F64, I32 or I64, by the sum over all ranks, or by the mean (floats only). All
 * ranks must make the same calls in the same order, with arrays of the same size; all ranks get the same bits. If a
 * call fails, `data` is undefined and the ring cannot be used any more. Within timeout_ms, every rank learns which rank
 * is lost. The remaining ranks may make a new ring. Errors: CONNECTION_LOST, TIMED_OUT, PROTOCOL_ERROR (arrays of
 * different sizes), INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_ring_all_reduce(linnet_ring *ring, void *data, uint64_t count, int32_t dtype,
                                                linnet_ring_operation operation, linnet_error *error);
/* Leaves the ring and frees it; the next all-reduce of the other ranks fails. Accepts NULL. */
LINNET_API void linnet_ring_free(linnet_ring *ring);

#ifdef __cplusplus
}
#endif

#endif
