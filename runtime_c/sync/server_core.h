/* server_core.h - what a server does, without sockets, files, clocks and threads: streams in, updates out.
 * The owner (posix_server.c, or a simulator) moves bytes between streams and peers and passes the time in, in ns. */
#ifndef LN_SYNC_SERVER_CORE_H
#define LN_SYNC_SERVER_CORE_H

#include "sync/host.h"
#include "sync/manifest.h"
#include "sync/stream.h"

typedef struct ln_sync_server ln_sync_server;

typedef struct ln_sync_server_config {
    uint32_t workers;     /* members that a step needs, unless elastic; 0: 1 */
    uint32_t quorum;      /* pushes that close a step; 0: those of all members */
    bool elastic;         /* a step needs the members that there are */
    bool asynchronous;    /* every worker is a group of its own */
    int64_t staleness;    /* closed steps that a group may be ahead of the slowest; -1: any number */
    uint32_t encodings;   /* accepted for gradients, bits 1 << encoding; plain always is */
    uint32_t chunk;       /* 0: LN_SYNC_CHUNK */
    uint32_t heartbeat;   /* ms; 0: 5000 */
    uint32_t lease;       /* ms; 0: three heartbeats */
    uint32_t max_streams; /* connections; 0: 4096 */
    uint64_t max_bytes;   /* of pushes, copies and replies in memory; 0: 1 GiB */
    uint64_t batch;       /* examples of a global batch, shared out in ACK; 0: unsaid */
    uint64_t epoch;       /* of this start, above all earlier ones */
    uint64_t save_every;  /* updates between two snapshots; 0: when asked */
    bool repaired;        /* it may know less than its workers, which are refused then; else it would end */
} ln_sync_server_config;

/* How large the largest element is. LARGE gradients: from 2^31 on (f64: 2^255); variables: from 2^95 (2^767), and all
 * in f16. From variables and gradients below that no update overflows by itself: it would take 2^30 of them. */
typedef enum ln_sync_size { LN_SYNC_ORDINARY, LN_SYNC_LARGE, LN_SYNC_INFINITE } ln_sync_size;

/* How aggregated gradients become new values. Of one update: prepare, place (per tensor that is pushed), update. */
typedef struct ln_sync_apply {
    void *context;
    /* A tensor's value: what DATA sends, at its place for good. write: the caller is about to change it. */
    void *(*value)(void *context, uint32_t tensor, bool write);
    /* rows[tensor]: how many rows of a sparse one were pushed (0 of others). */
    linnet_status (*prepare)(void *context, const uint64_t *rows, linnet_error *error);
    /* Where its gradient is to lie, [elements], or of a sparse one [rows]; and the numbers of these rows in the shard's
     * part, ascending. */
    void (*place)(void *context, uint32_t tensor, int64_t **ids, void **gradient);
    linnet_status (*update)(void *context, linnet_error *error);
    /* The same where gradients or variables are so large that it may overflow. *size: of the variables afterwards;
     * INFINITE: one was not finite, and all are as they were before. NULL: like update. */
    linnet_status (*try_update)(void *context, ln_sync_size *size, linnet_error *error);
} ln_sync_apply;

/* Where state outlives the process. NULL: nowhere. */
typedef struct ln_sync_storage {
    void *context;
    /* Appends a record to the journal, as durable as is wished when it returns. NULL: there is no journal. */
    linnet_status (*append)(void *context, const ln_sync_slice *parts, int count, linnet_error *error);
    /* Keeps all variables with `table` (text) in one snapshot, atomically; then begins the journal anew. `where` says
     * the place for people. */
    linnet_status (*save)(void *context, const char *table, char *where, size_t size, linnet_error *error);
} ln_sync_storage;

/* The manifest is kept and not freed; the rest is copied. */
linnet_status ln_sync_server_new(const ln_sync_manifest *manifest, const ln_sync_server_config *config,
                                 const ln_sync_apply *apply, const ln_sync_storage *storage, const ln_sync_host *host,
                                 ln_sync_server **out, linnet_error *error);
void ln_sync_server_release(ln_sync_server *server);

/* ---- before it serves: what a storage has kept ----------------------------------------------------------------- */

/* Takes the table of a snapshot whose variables are loaded. */
linnet_status ln_sync_server_restore(ln_sync_server *server, const char *table, linnet_error *error);
/* Makes a journalled update again; one that the snapshot holds already is skipped. */
linnet_status ln_sync_server_replay(ln_sync_server *server, const void *record, size_t size, linnet_error *error);

/* So many bytes of the journal's end were not whole, for the status. */
void ln_sync_server_left_out(ln_sync_server *server, uint64_t bytes);

/* ---- connections ------------------------------------------------------------------------------------------------ */

/* A stream for a new connection; it is the server's. NULL: there are max_streams. */
ln_sync_stream *ln_sync_server_connect(ln_sync_server *server, const char *peer, uint64_t now);
/* A pointer of the owner's with a stream. */
void ln_sync_server_set_owner(ln_sync_stream *stream, void *owner);
void *ln_sync_server_owner(const ln_sync_stream *stream);
/* The connection has ended, or ended wrongly; the stream is gone. */
void ln_sync_server_disconnect(ln_sync_server *server, ln_sync_stream *stream, uint64_t now);
/* Bytes have come from it: call before ln_sync_stream_received, which does the rest. */
void ln_sync_server_heard(ln_sync_server *server, ln_sync_stream *stream, uint64_t now);
/* Queues what is due on this stream. Call before ln_sync_stream_pending, again while that gives something. */
void ln_sync_server_fill(ln_sync_server *server, ln_sync_stream *stream);
/* The next stream that has something to send or to be closed or to go on reading since it was last asked for; NULL:
 * none. */
ln_sync_stream *ln_sync_server_woken(ln_sync_server *server);
/* The connection is to be closed when its stream is idle. */
bool ln_sync_server_closing(const ln_sync_server *server, const ln_sync_stream *stream);
/* True once after the stream was paused and may read again: then call ln_sync_stream_received(stream, 0). */
bool ln_sync_server_resumed(ln_sync_server *server, ln_sync_stream *stream);

/* Leases, time-outs. Returns when to call again at the latest. Call it after what has come was received. */
uint64_t ln_sync_server_tick(ln_sync_server *server, uint64_t now);

/* ---- its state -------------------------------------------------------------------------------------------------- */

uint64_t ln_sync_server_version(const ln_sync_server *server); /* updates made, over all starts */
/* Not OK: it can serve no more (superseded, an update or the journal failed); says why. */
linnet_status ln_sync_server_failure(const ln_sync_server *server, linnet_error *error);
/* A snapshot now. Errors: INVALID_ARGUMENT (no storage), the storage's. */
linnet_status ln_sync_server_save(ln_sync_server *server, linnet_error *error);
/* Tells all peers that it ends. */
void ln_sync_server_shut(ln_sync_server *server, bool over);
/* JSON; returns the length it needed, like snprintf. docs/protocol.md, REPORT, lists the keys. */
size_t ln_sync_server_status(ln_sync_server *server, char *text, size_t size);
/* The same in Prometheus' text format. */
size_t ln_sync_server_metrics(ln_sync_server *server, char *text, size_t size);
/* The transport's counts, for the status. */
void ln_sync_server_counted(ln_sync_server *server, ln_sync_stream *stream, uint64_t received, uint64_t sent);

/* ---- policy ----------------------------------------------------------------------------------------------------- */

/* Shares `batch` examples out to n workers by their speeds (examples per second; 0: not known, an average one). All
 * shares add up to batch, and where it has so many each is 1 at least. */
void ln_sync_share(const double *speed, uint32_t n, uint64_t batch, uint64_t *examples);

#endif
