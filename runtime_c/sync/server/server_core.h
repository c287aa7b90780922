/* server_core.h - the logic of a server, without sockets, files, clocks and threads. It reads streams and makes
 * updates. Its owner (posix_server.c, or a simulator) moves bytes between streams and peers, and passes the time in
 * ns. */
#ifndef LN_SYNC_SERVER_CORE_H
#define LN_SYNC_SERVER_CORE_H

#include "net/stream.h"
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

/* Keeps a reference to the manifest, which the caller frees; copies the rest. */
linnet_status ln_sync_server_new(const ln_sync_manifest *manifest, const ln_sync_server_config *config,
                                 const ln_sync_apply *apply, const ln_sync_storage *storage, const ln_sync_host *host,
                                 ln_sync_server **out, linnet_error *error);
void ln_sync_server_release(ln_sync_server *server);

/* ---- before it serves: restoring from storage -------------------------------------------------------------------- */

/* Restores the state in the table of a snapshot. The snapshot's variables must already be loaded. */
linnet_status ln_sync_server_restore(ln_sync_server *server, const char *table, linnet_error *error);
/* Repeats an update of the journal, or skips it if the snapshot already contains it. */
linnet_status ln_sync_server_replay(ln_sync_server *server, const void *record, size_t size, linnet_error *error);

/* Stores the number of incomplete bytes at the end of the journal, for the status. */
void ln_sync_server_left_out(ln_sync_server *server, uint64_t bytes);

/* ---- connections ------------------------------------------------------------------------------------------------ */

/* Returns a stream for a new connection. The server owns the stream. Returns NULL if there are already max_streams. */
ln_net_stream *ln_sync_server_connect(ln_sync_server *server, const char *peer, uint64_t now);
/* These functions attach a pointer of the owner to a stream, and return it. */
void ln_sync_server_set_owner(ln_net_stream *stream, void *owner);
void *ln_sync_server_owner(const ln_net_stream *stream);
/* Call this when the connection has ended or failed. Frees the stream. */
void ln_sync_server_disconnect(ln_sync_server *server, ln_net_stream *stream, uint64_t now);
/* Call this when bytes have arrived, before ln_net_stream_received, which handles them. */
void ln_sync_server_heard(ln_sync_server *server, ln_net_stream *stream, uint64_t now);
/* Queues frames that are due on this stream. Call it before each call of ln_net_stream_pending, until
 * ln_net_stream_pending returns 0. */
void ln_sync_server_fill(ln_sync_server *server, ln_net_stream *stream);
/* Returns the next stream that has something to send, is to be closed, or may read again since the last call. Returns
 * NULL if there is none. */
ln_net_stream *ln_sync_server_woken(ln_sync_server *server);
/* Tells whether the connection is to be closed when its stream is idle. */
bool ln_sync_server_closing(const ln_sync_server *server, const ln_net_stream *stream);
/* Returns true once when a paused stream may read again. Then call ln_net_stream_received(stream, 0). */
bool ln_sync_server_resumed(ln_sync_server *server, ln_net_stream *stream);

/* Handles leases and time-outs. Returns the latest time of the next call. Call it after received bytes were
 * processed. */
uint64_t ln_sync_server_tick(ln_sync_server *server, uint64_t now);

/* ---- state ------------------------------------------------------------------------------------------------------ */

uint64_t ln_sync_server_version(const ln_sync_server *server); /* number of updates, over all starts */
uint64_t ln_sync_server_puts(const ln_sync_server *server); /* values that clients have put since the start; they count
                                                              as updates in the version */
/* Not OK if the server cannot continue (superseded, or an update or the journal failed); `error` says why. */
linnet_status ln_sync_server_failure(const ln_sync_server *server, linnet_error *error);
/* Writes a snapshot now. Errors: INVALID_ARGUMENT (no storage), those of the storage. */
linnet_status ln_sync_server_save(ln_sync_server *server, linnet_error *error);
/* Tells all peers that the server ends. over: the job is finished. */
void ln_sync_server_shut(ln_sync_server *server, bool over);
/* Writes the status as JSON. Returns the length of the whole text, like snprintf. docs/protocol.md, REPORT, lists the
 * keys. */
size_t ln_sync_server_status(ln_sync_server *server, char *text, size_t size);
/* Writes the status in Prometheus' text format. */
size_t ln_sync_server_metrics(ln_sync_server *server, char *text, size_t size);
/* Passes the transport's byte counts for the status. */
void ln_sync_server_counted(ln_sync_server *server, ln_net_stream *stream, uint64_t received, uint64_t sent);

/* ---- policy ----------------------------------------------------------------------------------------------------- */

/* Divides `batch` examples among n workers by their speeds (examples per second; 0: unknown, counts as average). The
 * shares add up to `batch`, and each is at least 1 if there are enough examples. */
void ln_sync_share(const double *speed, uint32_t n, uint64_t batch, uint64_t *examples);

#endif
