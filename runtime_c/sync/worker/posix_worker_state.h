/* posix_worker_state.h - shared by the files of the blocking worker. */
#ifndef LN_SYNC_POSIX_WORKER_STATE_H
#define LN_SYNC_POSIX_WORKER_STATE_H

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

#endif
