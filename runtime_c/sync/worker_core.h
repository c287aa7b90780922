/* worker_core.h - a worker's side of the protocol, to the servers of all shards, without sockets: its owner moves bytes
 * between transports and streams, and gives it the time. posix_worker.c does so; simulators do too. */
#ifndef LN_SYNC_WORKER_CORE_H
#define LN_SYNC_WORKER_CORE_H

#include "sync/host.h"
#include "sync/stream.h"

#include "linnet_sync.h"

typedef struct ln_sync_worker ln_sync_worker;

/* `servers` are names for error messages; link i is the one to servers[i]. `config` is complete and checked.
 * Errors: UNKNOWN_NAME (the model is not for sync), OUT_OF_MEMORY. */
linnet_status ln_sync_worker_create(linnet_model *model, linnet_store *store, const char *const *servers, int links,
                                    const linnet_worker_config *config, const ln_sync_host *host, ln_sync_worker **out,
                                    linnet_error *error);
/* Releases nothing that streams still send: close the transports first. */
void ln_sync_worker_free(ln_sync_worker *worker);

/* ---- links ------------------------------------------------------------------------------------------------------- */

typedef enum ln_sync_wish {
    LN_SYNC_WISH_NONE,    /* there is no connection, and none is wanted now */
    LN_SYNC_WISH_CONNECT, /* begin to connect, and say so */
    LN_SYNC_WISH_KEEP,    /* there is one */
    LN_SYNC_WISH_CLOSE    /* end it (what is left to send may be tried once), and say that it is lost */
} ln_sync_wish;

ln_sync_wish ln_sync_worker_wish(const ln_sync_worker *worker, int link);
const char *ln_sync_worker_address(const ln_sync_worker *worker, int link);
ln_sync_stream *ln_sync_worker_stream(const ln_sync_worker *worker, int link);
/* A connection is there, or will be when its transport can send: the greeting waits in the stream. */
void ln_sync_worker_connected(ln_sync_worker *worker, int link);
/* There is no connection any more, or it could not be made. `why` may be NULL. The stream is reset. */
void ln_sync_worker_lost(ln_sync_worker *worker, int link, const linnet_error *why);
/* Heartbeats, silence, what waits for room in a stream. After bytes were moved, and when the deadline is over. */
void ln_sync_worker_advance(ln_sync_worker *worker);
/* The call that waits ends with TIMED_OUT: a signal has come. */
void ln_sync_worker_interrupt(ln_sync_worker *worker);
/* When to call it again at the latest. */
uint64_t ln_sync_worker_deadline(const ln_sync_worker *worker);

/* ---- what a worker does: one thing at a time, begun here, over when _finished says so
 * -------------------------------- */

/* Agrees with all servers. */
void ln_sync_worker_begin_agreement(ln_sync_worker *worker);
/* Newest values of all tensors. Errors of the others as linnet_sync.h says. */
void ln_sync_worker_begin_pull(ln_sync_worker *worker);
/* One list of rows per table; `rows` ascending, each once; they come to `data` in this order. */
typedef struct ln_sync_request {
    const char *table;
    const int64_t *rows;
    size_t count;
    void *data;
} ln_sync_request;
linnet_status ln_sync_worker_begin_rows(ln_sync_worker *worker, const ln_sync_request *tables, int count,
                                        linnet_error *error);
/* `session` NULL: what local steps have changed. `pull`: and new values after that. */
linnet_status ln_sync_worker_begin_push(ln_sync_worker *worker, linnet_session *session, double weight, bool pull,
                                        linnet_error *error);
void ln_sync_worker_begin_save(ln_sync_worker *worker);
/* Says BYE; finished when it is sent. */
void ln_sync_worker_begin_leave(ln_sync_worker *worker);
/* True: it is over, with *status and `error`; what was begun is then given up. While it is not over nobody may change
 * the store or the outputs of the session. */
bool ln_sync_worker_finished(ln_sync_worker *worker, linnet_status *status, linnet_error *error);

/* The store has the newest values that servers gave with the last answer. */
bool ln_sync_worker_fresh(const ln_sync_worker *worker);
/* Fills all but struct_size. Times of the last step are the core's; links stay valid until the next call. */
void ln_sync_worker_get_info(ln_sync_worker *worker, linnet_worker_info *info);
/* Bytes of a row of the table and how many rows it has; false: no such table. */
bool ln_sync_worker_table(const ln_sync_worker *worker, const char *name, uint64_t *row_bytes, uint64_t *rows);
/* Name of the i-th table whose rows `grad` is fed; NULL past the end. */
const char *ln_sync_worker_remote(const ln_sync_worker *worker, int i);

#endif
