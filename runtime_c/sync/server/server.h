/* server.h - the types of a server: its configuration, what it calls to make updates and to store them, and the names
 * of its parts, which server_state.h describes. The files, from below; each calls only files that stand before it here:
 * server_memory, server_peers, server_members, server_pull, server_update, server_value, record, server_put,
 * server_step, barrier, server_join, server_push, server_status, server_connections, server_core. */
#ifndef LN_SYNC_SERVER_H
#define LN_SYNC_SERVER_H

#include "net/handler.h"
#include "sync/codec/manifest.h"
#include "sync/common/combine.h"
#include "sync/common/host.h"

typedef struct ln_sync_server ln_sync_server;

typedef struct ln_sync_server_config {
    uint32_t workers;     /* number of members that a step needs, unless elastic; 0: 1 */
    uint32_t quorum;      /* number of pushes that close a step; 0: the pushes of all members */
    bool elastic;         /* a step needs only the current members */
    bool asynchronous;    /* every worker is its own group */
    int64_t staleness;    /* number of closed steps by which a group may be ahead of the slowest; -1: no limit */
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
    bool repaired; /* the server may know less than its workers, and refuses workers that know more; if false, it ends
                      instead */
} ln_sync_server_config;

/* How aggregated gradients become new values. For one update the core calls prepare, then place for each pushed tensor,
 * then update. */
typedef struct ln_sync_apply {
    void *context;
    /* Returns a tensor's value, whose address never changes. DATA frames send it. write: the caller is about to change
     * the value. */
    void *(*value)(void *context, uint32_t tensor, bool write);
    /* rows[tensor]: number of pushed rows of a sparse tensor; 0 for other tensors. */
    linnet_status (*prepare)(void *context, const uint64_t *rows, linnet_error *error);
    /* Returns where the tensor's gradient is to be written: [elements], or [rows] for a sparse tensor. For a sparse
     * tensor, also returns where its ascending row numbers are to be written (`ids`); they count within the shard's
     * part. */
    void (*place)(void *context, uint32_t tensor, int64_t **ids, void **gradient);
    linnet_status (*update)(void *context, linnet_error *error);
    /* Like `update`, for gradients or variables so large that the update may overflow. *size: class of the variables
     * after the update; INFINITE: a variable was not finite, and all variables were restored. If try_update is NULL,
     * `update` is called instead. */
    linnet_status (*try_update)(void *context, ln_sync_size *size, linnet_error *error);
} ln_sync_apply;

/* Storage that survives the process. A member that is NULL means that there is no such storage. */
typedef struct ln_sync_storage {
    void *context;
    /* Appends a record to the journal. When it returns, the record is as durable as configured. NULL: there is no
     * journal. */
    linnet_status (*append)(void *context, const ln_net_slice *parts, int count, linnet_error *error);
    /* Writes all variables and the text `table` to one snapshot, atomically; then empties the journal. `where` receives
     * the place in words. */
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
