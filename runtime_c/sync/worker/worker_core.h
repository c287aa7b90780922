/* worker_core.h - a worker's side of the protocol, which talks to the servers of all shards; without sockets. Its owner
 * moves bytes between transports and streams, and passes the time. The owner is posix_worker.c or a simulator. */
#ifndef LN_SYNC_WORKER_CORE_H
#define LN_SYNC_WORKER_CORE_H

#include "net/stream.h"
#include "sync/common/host.h"

#include "linnet_sync.h"

typedef struct ln_sync_worker ln_sync_worker;

/* `servers` are names for error messages; link i belongs to servers[i]. `config` is complete and checked. Errors:
 * UNKNOWN_NAME (the model is not made for sync), OUT_OF_MEMORY. */
linnet_status ln_sync_worker_create(linnet_model *model, linnet_store *store, const char *const *servers, int links,
                                    const linnet_worker_config *config, const ln_sync_host *host, ln_sync_worker **out,
                                    linnet_error *error);
/* Frees the worker. Close the transports first, because their streams may still be sending memory of the worker. */
void ln_sync_worker_free(ln_sync_worker *worker);

/* ---- links ------------------------------------------------------------------------------------------------------- */

typedef enum ln_sync_wish {
    LN_SYNC_WISH_NONE,    /* there is no connection, and none is needed now */
    LN_SYNC_WISH_CONNECT, /* begin to connect, and call ln_sync_worker_connected */
    LN_SYNC_WISH_KEEP,    /* there is a connection; keep it */
    LN_SYNC_WISH_CLOSE /* close the connection (try once to send the remaining bytes), and call ln_sync_worker_lost */
} ln_sync_wish;

ln_sync_wish ln_sync_worker_wish(const ln_sync_worker *worker, int link);
const char *ln_sync_worker_address(const ln_sync_worker *worker, int link);
ln_net_stream *ln_sync_worker_stream(const ln_sync_worker *worker, int link);
/* Call this when a connection exists, or is being established. Queues the greeting in the stream. */
void ln_sync_worker_connected(ln_sync_worker *worker, int link);
/* Call this when the connection is lost, or could not be established. `why` may be NULL. Resets the stream. */
void ln_sync_worker_lost(ln_sync_worker *worker, int link, const linnet_error *why);
/* Handles heartbeats, silent servers, and work that waits for room in a stream. Call it after bytes were moved, and at
 * the deadline. */
void ln_sync_worker_advance(ln_sync_worker *worker);
/* Ends the current call with TIMED_OUT, because of a signal. */
void ln_sync_worker_interrupt(ln_sync_worker *worker);
/* Returns the latest time of the next call of ln_sync_worker_advance. */
uint64_t ln_sync_worker_deadline(const ln_sync_worker *worker);

/* ---- what a worker does: one thing at a time ------------------------------------------------------------------
 * These functions begin a task. It is done when ln_sync_worker_finished returns true. */

/* Begins the handshakes with all servers. */
void ln_sync_worker_begin_agreement(ln_sync_worker *worker);
/* Pulls the newest values of all tensors. linnet_sync.h lists the errors of these functions. */
void ln_sync_worker_begin_pull(ln_sync_worker *worker);
/* One list of rows per table: `rows` is ascending, without repeats; the values of the rows are written to `data` in
 * this order. */
typedef struct ln_sync_request {
    const char *table;
    const int64_t *rows;
    size_t count;
    void *data;
} ln_sync_request;
linnet_status ln_sync_worker_begin_rows(ln_sync_worker *worker, const ln_sync_request *tables, int count,
                                        linnet_error *error);
/* session NULL: pushes the changes that local steps have made. pull: also pulls new values afterwards. */
linnet_status ln_sync_worker_begin_push(ln_sync_worker *worker, linnet_session *session, double weight, bool pull,
                                        linnet_error *error);
/* Sets the value of a variable at its servers. `data` must stay as it is until the task is finished. */
linnet_status ln_sync_worker_begin_put(ln_sync_worker *worker, const char *name, const void *data, size_t bytes,
                                       linnet_error *error);
void ln_sync_worker_begin_save(ln_sync_worker *worker);
/* Sends BYE. The task is finished when BYE is sent. */
void ln_sync_worker_begin_leave(ln_sync_worker *worker);
/* Returns true when the task is done or given up, and fills *status and `error`. Before that, the store and the outputs
 * of the session must not change. */
bool ln_sync_worker_finished(ln_sync_worker *worker, linnet_status *status, linnet_error *error);

/* Tells whether the store has the newest values that the servers mentioned in their last answer. */
bool ln_sync_worker_fresh(const ln_sync_worker *worker);
/* Fill everything except struct_size. The core measures the times of the last step. */
void ln_sync_worker_get_info(ln_sync_worker *worker, linnet_worker_info *info);
void ln_sync_worker_get_link(const ln_sync_worker *worker, int i, linnet_link_info *info);
/* Returns the bytes of a row of the table and its number of rows, or false if there is no such table. */
bool ln_sync_worker_table(const ln_sync_worker *worker, const char *name, uint64_t *row_bytes, uint64_t *rows);
/* Returns the name of the i-th table whose rows are fed to `grad`; NULL after the last one. */
const char *ln_sync_worker_remote(const ln_sync_worker *worker, int i);

#endif
