/* posix_worker.h - shared by the files of the blocking worker. */
#ifndef LN_SYNC_POSIX_WORKER_H
#define LN_SYNC_POSIX_WORKER_H

#include "net/error.h"
#include "net/transport.h"
#include "sync/worker/worker_core.h"

#include <poll.h>
#include <pthread.h>

typedef struct posix_link {
    const char *address; /* owned by the core */
    ln_net_transport *transport;
    uint64_t sent, received; /* bytes sent and received on connections that have ended */
} posix_link;

struct linnet_worker {
    ln_sync_worker *core;
    ln_net_security *security;
    bool insecure;
    int link_count;
    posix_link *links;
    struct pollfd *fds;
    bool (*interrupted)(void *context); /* from the config */
    void *interrupted_context;
    /* Held by the thread that moves bytes: the thread of a call, or the heartbeat thread between calls. */
    pthread_mutex_t moving;
    pthread_mutex_t resting; /* protects `ending`; the heartbeat thread waits with it */
    pthread_cond_t wake;
    pthread_t thread;
    bool threaded, ending;
    /* Row lookups: the sorted row numbers, their places, and the received rows. The memory is reused by later calls. */
    struct posix_lookup *lookups;
    int lookup_count;
};

/* Moves bytes until the core has finished the work that was begun. The caller holds `moving`. */
linnet_status ln_worker_drive(linnet_worker *worker, linnet_error *error);
/* Does one round of connecting, receiving and sending. Does not wait. */
void ln_worker_turn(linnet_worker *worker);

/* posix_rows.c: pulls the rows whose numbers an `ids` session has found, and writes them to the inputs of a `grad`
 * session. */
linnet_status ln_worker_feed_rows(linnet_worker *worker, linnet_session *ids, linnet_session *session,
                                  linnet_error *error);
void ln_worker_free_lookups(linnet_worker *worker);

#endif
