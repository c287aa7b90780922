/* linnet_sync.h - the public C API of liblinnet_sync: variables shared by many machines that train together.
 * A second library over linnet.h, whose conventions hold here too. docs/protocol.md is what it speaks.
 *
 *  server   owns parameters and optimizer state, and runs the file's `update/...` signatures on pushed gradients
 *  worker   pulls parameters into its store, runs the file's `grad` signature on its data, pushes the gradients
 *  ring     sums arrays over peers, without a server
 *
 * Files for both come from linnet.sync.signatures (Python). Addresses are "host:port", "[::1]:port", ":port"
 * (loopback), "unix:PATH", or "shm:PATH" (shared memory, found through a Unix socket); port 0 lets the system choose.
 * Errors of every function that talks to others, besides those named: UNREACHABLE, REFUSED, TIMED_OUT, PROTOCOL_ERROR,
 * NOT_AUTHENTICATED, SUPERSEDED, CONNECTION_LOST. The record's `tensor` holds the address. */
#ifndef LINNET_SYNC_H
#define LINNET_SYNC_H

#include "linnet.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct linnet_server linnet_server;
typedef struct linnet_worker linnet_worker;

/* "0.1.0": of this library; programs that use both libraries hold it against linnet_version(). */
LINNET_API const char *linnet_sync_version(void);

/* ---- how to reach one another: a part of the other configs ----------------------------------------------------- */

/* Encryption is TLS 1.3 from OpenSSL's libssl (1.1.1 or later), opened when a key or certificate is given. Strings need
 * to live only during the call that takes the config. */
typedef struct linnet_link_config {
    size_t struct_size;
    const char *key_file; /* pre-shared key: 32 bytes or more, raw or hexadecimal, not all zeros; readable by its owner
                           * alone */
    const char *certificate; /* PEM: own certificates, */
    const char *private_key; /* their key, */
    const char *authority;   /* and whom to trust: both sides are verified */
    const char *libssl;      /* path of the library; NULL: the system's */
    int32_t insecure;        /* 1: without a key also over addresses that are neither loopback nor local sockets */
    int32_t heartbeat_ms;    /* 0: 5000, or a third of the lease, at a server; the server's at a worker */
    int32_t lease_ms;        /* silence after which the other side counts as lost; 0: three heartbeats */
    int32_t chunk;           /* bytes of one frame at most, 4096 to 4 MiB; 0: 256 KiB */
    const char *server_name; /* with certificates: the DNS name or IP address that a server's must carry, for who
                              * connects to it; NULL: the host of the address; localhost, where that has none */
} linnet_link_config;

LINNET_API void linnet_link_config_init(linnet_link_config *config);

/* ---- server ------------------------------------------------------------------------------------------------------ */

/* How steps of several workers become updates. Workers belong to groups; each group has a barrier. */
typedef enum linnet_sync_mode {
    LINNET_SYNC_SYNCHRONOUS = 0, /* an update waits for all members of the group, or for `quorum` of them */
    LINNET_SYNC_ASYNCHRONOUS = 1 /* every push is an update; a worker may be `staleness` steps ahead of the slowest */
} linnet_sync_mode;

typedef enum linnet_sync_durability {
    LINNET_SYNC_JOURNAL =
        0,                 /* updates are in the folder's journal before they are acknowledged; without folder: none */
    LINNET_SYNC_FSYNC = 1, /* and on the disk */
    LINNET_SYNC_VOLATILE = 2 /* only snapshots are kept */
} linnet_sync_durability;

typedef struct linnet_server_config {
    size_t struct_size;
    linnet_link_config link;
    const char *const *listen; /* addresses; NULL: ":0" */
    int32_t listen_count;
    int32_t mode;        /* linnet_sync_mode */
    int32_t workers;     /* steps begin when so many are members of a group; 0: 1 */
    int32_t quorum;      /* pushes that close a step of a group; later ones are dropped; 0: all members */
    int32_t elastic;     /* 1: a lost worker is waited for no longer; 0: it is, `workers` are always needed */
    int32_t staleness;   /* ASYNCHRONOUS: closed steps that a worker may be ahead of the slowest; -1: any */
    const char *folder;  /* of snapshots, journal and epoch, made if need be; NULL: nothing outlives the process */
    int32_t durability;  /* linnet_sync_durability */
    int32_t save_every;  /* updates between two snapshots; 0: on request and at the end */
    int64_t batch;       /* examples of a global batch, which workers get shares of by their speed; 0: says nothing */
    uint64_t max_bytes;  /* memory for gradients that are under way; 0: 1 GiB */
    int32_t max_workers; /* connections; 0: 4096 */
    int32_t compression; /* 0: what workers ask for is granted; 1: gradients travel plain */
    const char *metrics; /* address for Prometheus (HTTP, text format); NULL: none */
    int32_t threads;     /* of the updates; 0: linnet_default_threads() */
    const linnet_allocator *allocator; /* NULL: malloc */
    int32_t repair; /* 1: goes on from what is whole of a damaged journal, which is kept beside it, and refuses workers
                     * that know of more instead of ending */
} linnet_server_config;

LINNET_API void linnet_server_config_init(linnet_server_config *config);
/* A server of the variables that `update/...` signatures of the model change; it listens when this returns. With a
 * folder that holds a snapshot of this model it goes on from there. `store` NULL: an own one. Model and store are kept
 * alive. Errors: UNKNOWN_NAME (no update signature), OTHER_MODEL and CORRUPT (the folder's, with the file and the
 * place; see `repair`), SUPERSEDED (another server holds the folder), WRITE_FAILED, those of plans and sessions,
 * OUT_OF_MEMORY, INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_server_create(linnet_model *model, linnet_store *store,
                                              const linnet_server_config *config, linnet_server **out,
                                              linnet_error *error);
/* The i-th address that it listens on, with the port that the system chose; -1: that of the metrics. NULL: there is
 * none. */
LINNET_API const char *linnet_server_address(const linnet_server *server, int i);
/* Serves, in the calling thread, until linnet_server_stop; `updates` > 0: or until so many were made since creation.
 * Saves at the end. One bad or lost connection ends alone. Errors: SUPERSEDED, CORRUPT (a worker has an answer to a
 * step that the folder has lost), WRITE_FAILED, those of linnet_run. */
LINNET_API linnet_status linnet_server_run(linnet_server *server, uint64_t updates, linnet_error *error);
/* Ends linnet_server_run, soon. `over` 1: the job has ended, which workers are told (JOB_OVER; so they are after
 * `updates`); 0: they wait for a server to come back. Any thread; also a signal handler. */
LINNET_API void linnet_server_stop(linnet_server *server, int over);
/* The variables; reading them while the server runs gives a state between two updates. Owned by the server. */
LINNET_API linnet_store *linnet_server_store(linnet_server *server);
/* Writes a snapshot to the folder now, atomically. Any thread. Errors: WRITE_FAILED, INVALID_ARGUMENT (no folder). */
LINNET_API linnet_status linnet_server_save(linnet_server *server, linnet_error *error);
/* Its state as JSON (members, steps, versions, staleness, bytes, times). Returns the length it needed, like snprintf.
 * Any thread. */
LINNET_API size_t linnet_server_status(linnet_server *server, char *text, size_t size);
/* The server must not be running. Closes its connections and sockets. */
LINNET_API void linnet_server_free(linnet_server *server);

/* ---- worker ------------------------------------------------------------------------------------------------------ */

/* How dense f32 gradients of 1024 elements or more travel. What is lost is added to the next gradient (error feedback,
 * of as many bytes as the gradients). Rows of sparse gradients travel as F16, BF16 or I8 too, without feedback. */
typedef enum linnet_sync_compression {
    LINNET_SYNC_PLAIN = 0,
    LINNET_SYNC_F16 = 1,
    LINNET_SYNC_BF16 = 2,
    LINNET_SYNC_I8 = 3,
    LINNET_SYNC_TOP_K = 4,  /* the `fraction` of largest magnitude */
    LINNET_SYNC_ONE_BIT = 5 /* signs, and two means */
} linnet_sync_compression;

typedef struct linnet_worker_config {
    size_t struct_size;
    linnet_link_config link;
    int32_t worker;      /* its number, the same again after a restart; -1: the server chooses */
    int32_t group;       /* for groups that are synchronous inside and asynchronous among themselves */
    int32_t compression; /* linnet_sync_compression */
    double fraction;     /* TOP_K: of the elements of a tensor, 0 to 1; 0: 0.01 */
    int32_t read_only;   /* 1: pulls only, and is no member: nobody waits for it */
    int32_t keep_pulled; /* 1: keeps a copy of what it pulled (as many bytes again), for linnet_worker_push without
                            session */
    int32_t lost_ms;     /* how long a server may be out of reach before a call gives up; 0: 60 000 */
    int32_t timeout_ms;  /* the longest that a call takes, other workers' slowness included; 0: no limit */
    int (*interrupted)(void *context); /* asked when a signal has come while a call waits; 1: it ends, TIMED_OUT. Also
                                          while linnet_worker_step computes, as linnet_run_config.poll: 1: CANCELLED.
                                          NULL: signals end no call */
    void *interrupted_context;
    const char *name; /* for people, at most 15 bytes of UTF-8; NULL: "" */
} linnet_worker_config;

LINNET_API void linnet_worker_config_init(linnet_worker_config *config);
/* Connects to the servers of all shards, in any order, and agrees with them on the tensors: those that `grad` has
 * gradients of, and those of the metadata sync.average and sync.read. `store` belongs to `model`; both are kept in use
 * until the worker is freed. A thread sends heartbeats between calls. `config` may be NULL.
 * A worker is used by one thread at a time.
 * Errors: OTHER_MODEL (the servers are of another file; names the variable that differs), INVALID_ARGUMENT (shards
 * twice or missing), UNKNOWN_NAME (a variable that no server has), OUT_OF_MEMORY, THREAD_FAILED. */
LINNET_API linnet_status linnet_worker_create(linnet_model *model, linnet_store *store, const char *const *servers,
                                              int32_t server_count, const linnet_worker_config *config,
                                              linnet_worker **out, linnet_error *error);
/* Brings the store's variables to the servers' newest values; what has not changed does not travel. No session of the
 * store may run meanwhile. When it fails variables may be of different versions: then pull again before you run. */
LINNET_API linnet_status linnet_worker_pull(linnet_worker *worker, linnet_error *error);
/* Rows of a table that may be too large for this machine: `count` numbers, each in [0, rows), any order, repeats
 * allowed
 * -> data [count, ...] in the table's dtype; `bytes` is the exact size of data.
 * Errors: UNKNOWN_NAME, INDEX_OUT_OF_RANGE, WRONG_SHAPE (bytes). */
LINNET_API linnet_status linnet_worker_pull_rows(linnet_worker *worker, const char *table, const int64_t *rows,
                                                 size_t count, void *data, size_t bytes, linnet_error *error);
/* Pushes the gradients that the last run of `session`, of signature `grad`, left in its outputs, and returns when all
 * servers have decided on them; linnet_worker_info.outcome says how. Lost connections are made again and the push is
 * repeated; it counts once. `weight` > 0: examples behind the gradient.
 * `session` NULL: pushes, for each variable, what was pulled less what the store holds now (needs keep_pulled): local
 * steps of federated averaging. Errors: UNKNOWN_NAME (an output is missing), INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_worker_push(linnet_worker *worker, linnet_session *session, double weight,
                                            linnet_error *error);
/* One step: the newest values, a run of `session` (signature `grad`, its inputs filled by the caller), and a push, in
 * one round trip: new values come with the answer, so that the next step finds them there. `ids`: for models with
 * remote tables a session of signature `ids` with the same inputs, else NULL; it is run to learn which rows to pull
 * into the inputs `rows/<table>`. Errors: as above, and those of linnet_run. */
LINNET_API linnet_status linnet_worker_step(linnet_worker *worker, linnet_session *session, linnet_session *ids,
                                            double weight, linnet_error *error);

typedef enum linnet_sync_outcome {
    LINNET_SYNC_APPLIED = 0,
    LINNET_SYNC_LATE = 1,      /* the step was closed without it: dropped */
    LINNET_SYNC_NOT_FINITE = 2 /* NaN or infinity in it, or in what the step's pushes or the update came to: dropped */
} linnet_sync_outcome;

/* One server, as a worker sees it. */
typedef struct linnet_link_info {
    const char *address;
    int32_t shard;
    int32_t connected; /* 0: lost, being made again */
    uint64_t version;  /* updates of its variables that this worker knows of */
    uint64_t epoch;    /* how often a server was started on this state */
    uint64_t sent;     /* bytes */
    uint64_t received; /* bytes */
    uint32_t reconnects;
    int64_t offset_ns; /* the server's clock less ours, of the exchange with the shortest delay (RFC 5905, section 8) */
    int64_t delay_ns;  /* of that exchange, both ways; -1: not measured yet */
    uint64_t clock_ns[5]; /* server's clock at the last answer: first and last push of the step, begin and end of the
                           * update, answer */
} linnet_link_info;

typedef struct linnet_worker_info {
    size_t struct_size;
    int32_t worker;      /* its number */
    int32_t outcome;     /* linnet_sync_outcome of the last push */
    int32_t compression; /* linnet_sync_compression that all servers agreed to */
    uint64_t step;       /* that it computes next */
    uint64_t version;    /* of the variables, the least of all shards' */
    uint64_t
        staleness; /* of the last push: other updates between its values and its own update, the most of all shards' */
    uint64_t applied, late, not_finite;      /* pushes so far */
    uint64_t sent, received;                 /* bytes so far */
    uint64_t tensors_pulled, tensors_same;   /* so far: that came, and that were skipped because they had not changed */
    uint64_t compute_ns;                     /* last step: between the values and the push */
    uint64_t push_ns;                        /* last step: until the last byte of the push was handed over */
    uint64_t wait_ns;                        /* last step: from then to the answer, other workers' time included */
    uint64_t pull_ns;                        /* last pull */
    uint64_t decided_ns;                     /* this machine's monotonic clock when the last push was decided */
    uint64_t first_example, examples, batch; /* this worker's share of the next global batch; batch 0: unsaid */
    uint32_t members;                        /* workers in the group at the last answer */
    uint64_t bytes;                          /* memory it holds, besides the store's */
    const linnet_link_info *links;           /* valid until the next call with this worker */
    int32_t link_count;
} linnet_worker_info;

LINNET_API linnet_status linnet_worker_get_info(linnet_worker *worker, linnet_worker_info *info);
/* Lets every server write a snapshot, and waits until they have. Errors: WRITE_FAILED, with the server's words. */
LINNET_API linnet_status linnet_worker_save(linnet_worker *worker, linnet_error *error);
/* Leaves in order (nobody waits for it any more) and frees it. Takes a second at most. */
LINNET_API void linnet_worker_free(linnet_worker *worker);

/* The status of the server at `address` as JSON, without being a worker; returns in *needed the length of the text,
 * which is cut to `size` like snprintf's. `link` may be NULL. */
LINNET_API linnet_status linnet_sync_status(const char *address, const linnet_link_config *link, char *text,
                                            size_t size, size_t *needed, linnet_error *error);

/* ---- ring: sums over peers, without a server --------------------------------------------------------------------- */

typedef struct linnet_ring linnet_ring;

typedef enum linnet_ring_operation { LINNET_RING_SUM = 0, LINNET_RING_MEAN = 1 } linnet_ring_operation;

typedef struct linnet_ring_config {
    size_t struct_size;
    linnet_link_config link; /* keys, insecure; chunk: bytes of a piece, 0: 256 KiB */
    const char *address;     /* where rank 0 waits for the others, the same for all; its port must not be 0 */
    const char *listen;      /* where this rank is reached by its neighbour; NULL: beside `address`, on a port that the
                                system picks */
    int32_t rank, size;      /* of this process, in [0, size) */
    int32_t timeout_ms;      /* how long others may take to come, and a neighbour may be silent; 0: 60 000 */
} linnet_ring_config;

LINNET_API void linnet_ring_config_init(linnet_ring_config *config);
/* Waits until all `size` ranks are there, and connects them to a ring. Used by one thread at a time.
 * Errors name the rank concerned, which is also in the record's op_index. TIMED_OUT: ranks that did not come;
 * REFUSED: another process has this rank, or the ring another size. */
LINNET_API linnet_status linnet_ring_create(const linnet_ring_config *config, linnet_ring **out, linnet_error *error);
/* data [count] of dtype F32, F64, I32 or I64 becomes the sum, or the mean (of floats), of all ranks' data; all ranks
 * call it in one order with arrays of one size, and get the same bits. When it fails data is undefined, and the ring
 * cannot be used any more: every rank learns within timeout_ms which rank is lost; those that are left may make a new
 * ring. Errors: CONNECTION_LOST, TIMED_OUT, PROTOCOL_ERROR (arrays of different sizes), INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_ring_all_reduce(linnet_ring *ring, void *data, uint64_t count, int32_t dtype,
                                                linnet_ring_operation operation, linnet_error *error);
/* Leaves; the others' next all-reduce fails. Accepts NULL. */
LINNET_API void linnet_ring_free(linnet_ring *ring);

#ifdef __cplusplus
}
#endif

#endif
