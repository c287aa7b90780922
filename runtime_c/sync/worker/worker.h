/* worker.h - the types that the owner of a worker and the worker's files use. worker_state.h describes the parts of a
 * worker. The files, from bottom to top; each calls only files before it: worker_model, worker_links, worker_agree,
 * worker_pull, worker_gradient, worker_put, worker_push, worker_info, worker_work, worker_core. */
#ifndef LN_SYNC_WORKER_H
#define LN_SYNC_WORKER_H

#include "net/handler.h"

#include "linnet_sync.h"

typedef struct ln_sync_worker ln_sync_worker;
typedef struct worker_link worker_link;     /* the connection to one server */
typedef struct worker_tensor worker_tensor; /* a shared variable */

/* What the owner is to do with the connection of a link. */
typedef enum ln_sync_wish {
    LN_SYNC_WISH_NONE,    /* there is no connection, and none is needed now */
    LN_SYNC_WISH_CONNECT, /* begin to connect, and call ln_sync_worker_connected */
    LN_SYNC_WISH_KEEP,    /* there is a connection; keep it */
    LN_SYNC_WISH_CLOSE /* close the connection (try once to send the remaining bytes), and call ln_sync_worker_lost */
} ln_sync_wish;

/* A request for rows of one table. `rows` has `count` row numbers, ascending and without repeats. The values of the
 * rows are written to `data`, in the same order. */
typedef struct ln_sync_request {
    const char *table;
    const int64_t *rows;
    size_t count;
    void *data;
} ln_sync_request;

/* The task of a worker, which does one task at a time. */
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

#endif
