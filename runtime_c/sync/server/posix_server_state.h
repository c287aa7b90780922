/* posix_server_state.h - the parts of a linnet_server, only for the files posix_*.c of this folder. */
#ifndef LN_SYNC_POSIX_SERVER_STATE_H
#define LN_SYNC_POSIX_SERVER_STATE_H

#include "net/posix_poller.h"
#include "sync/server/apply.h"
#include "sync/server/posix_metrics.h"
#include "sync/server/posix_storage.h"

#include "linnet_sync.h"

#include <pthread.h>
#include <stdatomic.h>

/* One connection. */
typedef struct posix_peer {
    struct posix_peer *next, *previous; /* list of all peers */
    struct posix_peer *now_next;        /* list of the peers with data that poll cannot see (LN_NET_NOW) */
    ln_net_transport *transport;
    ln_net_stream *stream;
    int mask;               /* events that the poller waits for */
    bool now, ended;        /* now: it is in the list `nows`; ended: nothing more is received or sent */
    uint64_t closing_since; /* time when the closing began; 0: the connection stays open */
    bool refused;           /* REFUSE is sent, and the connection waits for the peer to close it */
} posix_peer;

/* One address at which the server listens. */
typedef struct posix_listener {
    struct linnet_server *server;
    ln_net_listener *listener;
    uint64_t closed_until; /* time until which no connections are accepted, because descriptors were lacking; 0: the
                              poller watches this listener */
} posix_listener;

enum { STOP_NOT, STOP, STOP_OVER };

struct linnet_server {
    pthread_mutex_t mutex; /* protects everything below; the loop releases it while it waits */
    atomic_int waiting;    /* number of threads that wait for the mutex */
    atomic_int stop;       /* STOP_NOT; STOP: the server ends and may be started again; STOP_OVER: the job is over */
    int wake[2];           /* a pipe; a byte in it wakes the loop from its wait */
    linnet_model *model;
    linnet_store *store;
    bool own_store; /* the server has created the store, so it frees the store */
    ln_sync_manifest *manifest;
    ln_sync_sessions *sessions;
    ln_sync_folder *folder; /* NULL: nothing survives the server */
    ln_sync_server *core;
    ln_net_security *security; /* NULL: no TLS */
    ln_net_poller *poller;
    ln_sync_metrics *metrics; /* NULL: no /metrics */
    posix_listener *listeners;
    int listener_count;
    posix_peer *peers, *nows;
    uint32_t closing, closed; /* number of connections that are closing; number of connections that were closed since
                                 memory was last given back to the system */
    uint64_t journal_limit, created_version; /* size of the journal at which a snapshot is made; version at creation */
};

#endif
