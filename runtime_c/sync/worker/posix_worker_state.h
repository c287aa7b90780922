/* posix_worker_state.h - shared by the files of the blocking worker. */
#ifndef LN_SYNC_POSIX_WORKER_STATE_H
#define LN_SYNC_POSIX_WORKER_STATE_H

#include "net/error.h"
#include "net/transport.h"
#include "sync/worker/worker_core.h"

#include <poll.h>
#include <pthread.h>

/* The connection to one server. */
typedef struct posix_link {
    const char *address;         /* owned by the core */
    ln_net_transport *transport; /* NULL: there is no connection */
    uint64_t sent, received;     /* bytes sent and received on connections that have ended */
} posix_link;

struct linnet_worker {
    ln_sync_worker *core;
    ln_net_security *security; /* NULL: no TLS */
    bool insecure;             /* addresses of other machines are allowed without TLS */
    int link_count;
    posix_link *links;
    struct pollfd *fds;                 /* scratch space for poll, one entry per link */
    bool (*interrupted)(void *context); /* from the config: tells whether a call is to end; NULL: never */
    void *interrupted_context;
    /* The thread that moves bytes has this mutex: the thread of a call, or the heartbeat thread between calls. */
    pthread_mutex_t moving;
    pthread_mutex_t resting; /* protects `ending`; the heartbeat thread waits with it */
    pthread_cond_t wake;
    pthread_t thread;
    bool threaded, ending; /* the heartbeat thread exists; it is to end */
    /* Row lookups: the sorted row numbers, their places, and the received rows. The memory is reused by later calls. */
    struct posix_lookup *lookups;
    int lookup_count;
};

#endif
