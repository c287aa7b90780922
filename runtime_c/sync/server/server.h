/* server.h - the types of a server: its configuration, the functions by which it makes updates and stores them, and the
 * names of its parts, which server_state.h describes. The files, from bottom to top; each calls only files before it:
 * server_memory, server_peers, server_members, server_pull, server_update, server_value, record, server_put,
 * server_step, barrier, server_join, server_push, server_status, server_connections, server_core. */
#ifndef LN_SYNC_SERVER_H
#define LN_SYNC_SERVER_H

#include "net/handler.h"
#include "sync/codec/manifest.h"
#include "sync/common/combine.h"
#include "sync/common/host.h"

typedef struct ln_sync_server ln_sync_server;

/* The configuration. 0 stands for the default where the comment says so. */
typedef struct ln_sync_server_config {
    uint32_t workers;     /* number of members that a step needs, unless elastic; 0: 1 */
    uint32_t quorum;      /* number of pushes that close a step; 0: the pushes of all members */
    bool elastic;         /* a step needs only the current members */
    bool asynchronous;    /* every worker is its own group */
    int64_t staleness;    /* number of closed steps by which a group may be ahead of the slowest group; -1: no limit */
    uint32_t encodings;   /* encodings accepted for gradients, bits 1 << encoding; plain is always accepted. Encodings
                             of values: bits of LN_SYNC_PULL_ENCODINGS */
    uint32_t chunk;       /* 0: LN_NET_CHUNK */
    uint32_t heartbeat;   /* ms; 0: 5000 */
    uint32_t lease;       /* ms; 0: three heartbeats */
    uint32_t max_streams; /* connections; 0: 4096 */
    uint64_t max_bytes;   /* limit for pushes, copies and replies in memory; 0: 1 GiB */
    uint64_t batch;       /* examples in a global batch, whose shares are sent with ACK; 0: no sharing */
    uint64_t epoch;       /* epoch of this start, higher than all earlier epochs */
    uint64_t save_every;  /* updates between two snapshots; 0: only on request */
    bool repaired; /* the journal was repaired, so workers may know steps that the server does not know: the server
                      refuses such workers. If false, such a worker makes the server end */
} ln_sync_server_config;

/* The functions that turn combined gradients into new values. For one update, the core calls prepare, then place for
 * each pushed tensor, then update or try_update. */
typedef struct ln_sync_apply {
    void *context;
    /* Returns the address of a tensor's value, which never changes. DATA frames are sent from this memory. `write` says
     * that the caller is about to change the value. */
    void *(*value)(void *context, uint32_t tensor, bool write);
    /* Makes room for the gradients of one update. rows[tensor] is the number of pushed rows of a sparse tensor, and 0
     * for other tensors. */
    linnet_status (*prepare)(void *context, const uint64_t *rows, linnet_error *error);
    /* Returns where the tensor's gradient is to be written: [elements], or [rows] for a sparse tensor. For a sparse
     * tensor, also returns where its ascending row numbers are to be written (`ids`); they count within the shard's
     * part. */
    void (*place)(void *context, uint32_t tensor, int64_t **ids, void **gradient);
    /* Runs the update with the gradients in their places. */
    linnet_status (*update)(void *context, linnet_error *error);
    /* Does the same if gradients or variables are so large that the update may overflow. *size is the class of the
     * variables after the update. If it is INFINITE, a new value was not finite, and all variables have their old
     * values. If try_update is NULL, the core calls `update` instead. */
    linnet_status (*try_update)(void *context, ln_sync_size *size, linnet_error *error);
} ln_sync_apply;

/* The functions that store the server's state so that it survives the process. A function may be NULL. */
typedef struct ln_sync_storage {
    void *context;
    /* Appends a record to the journal. When the function returns, the record is as durable as the user has configured.
     * NULL: there is no journal. */
    linnet_status (*append)(void *context, const ln_net_slice *parts, int count, linnet_error *error);
    /* Writes all variables and the text `table` to one snapshot, atomically; then empties the journal. Writes a text
     * that says where the snapshot is to `where`, which has `size` bytes. NULL: there are no snapshots. */
    linnet_status (*save)(void *context, const char *table, char *where, size_t size, linnet_error *error);
} ln_sync_storage;

/* Parts of a server. */
typedef struct sync_connection sync_connection;
typedef struct sync_member sync_member;
typedef struct sync_group sync_group;
typedef struct sync_send sync_send;
typedef struct sync_buffer sync_buffer;
typedef struct sync_putter sync_putter;

#endif
