/* posix_worker.h - what the files of the blocking worker share. */
#ifndef LN_SYNC_POSIX_WORKER_H
#define LN_SYNC_POSIX_WORKER_H

#include "sync/error.h"
#include "sync/transport.h"
#include "sync/worker_core.h"

#include <poll.h>
#include <pthread.h>

typedef struct posix_link {
    const char *address; /* the core's */
    ln_sync_transport *transport;
    uint64_t sent, received; /* over connections that have ended */
} posix_link;

struct linnet_worker {
    ln_sync_worker *core;
    ln_sync_security *security;
    bool insecure;
    int link_count;
    posix_link *links;
    struct pollfd *fds;
    linnet_link_info *infos;
    int (*interrupted)(void *context); /* of the config */
    void *interrupted_context;
    /* Whoever moves bytes holds this: a call, or between calls the thread below. */
    pthread_mutex_t moving;
    pthread_mutex_t resting; /* of the thread */
    pthread_cond_t wake;
    pthread_t thread;
    bool threaded, ending;
    /* Rows: sorted numbers, where they are wanted, what came. Kept from call to call. */
    struct posix_lookup *lookups;
    int lookup_count;
};

/* Moves bytes until what was begun in the core is over. `moving` is held. */
linnet_status ln_worker_drive(linnet_worker *worker, linnet_error *error);
/* One round of connecting, receiving and sending that waits for nothing. */
void ln_worker_turn(linnet_worker *worker);

/* posix_rows.c: rows of the tables that an `ids` session has looked up -> the inputs of a `grad` session. */
linnet_status ln_worker_feed_rows(linnet_worker *worker, linnet_session *ids, linnet_session *session,
                                  linnet_error *error);
void ln_worker_free_lookups(linnet_worker *worker);

#endif
