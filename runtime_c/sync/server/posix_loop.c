/* posix_loop.c - the server's loop: one thread, any number of connections. Each connection gets a turn of LN_NET_TURN
 * bytes. Frames that the core queues are sent at once. */
#define _DEFAULT_SOURCE
#include "sync/server/posix_loop.h"

#include "net/posix_poller.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "net/transport_flow.h"
#include "net/transport_listen.h"
#include "sync/server/posix_metrics.h"
#include "sync/server/posix_server_state.h"
#include "sync/server/server_connections.h"
#include "sync/server/server_core.h"
#include "sync/server/server_peers.h"

#include "linnet_ext.h"

#include <sched.h>
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <time.h>
#include <unistd.h>

static const uint64_t SECOND = UINT64_C(1000000000);

uint64_t ln_sync_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

/* ---- connections of peers ---------------------------------------------------------------------------------------- */

static void watch(linnet_server *s, posix_peer *p) {
    const int wants = p->refused ? LN_NET_READ : ln_net_transport_wants(p->transport, p->stream),
              mask = wants & (LN_NET_READ | LN_NET_WRITE);
    if (mask != p->mask && ln_net_poller_change(s->poller, ln_net_transport_fd(p->transport), mask, p)) p->mask = mask;
    if (wants & LN_NET_NOW && !p->now) {
        p->now = true;
        p->now_next = s->nows;
        s->nows = p;
    }
}

void ln_sync_close_peer(linnet_server *s, posix_peer *p) {
    posix_peer **at = &s->nows;
    while (p->now && *at != p) at = &(*at)->now_next;
    if (p->now) *at = p->now_next;
    if (p->closing_since) s->closing--;
    if (p->next) p->next->previous = p->previous;
    if (p->previous)
        p->previous->next = p->next;
    else
        s->peers = p->next;
    ln_sync_server_disconnect(s->core, p->stream, ln_sync_now());
    ln_net_poller_remove(s->poller, ln_net_transport_fd(p->transport));
    ln_net_transport_free(p->transport);
    free(p);
    s->closed++;
}

/* After many connections have ended, for example those of strangers who never said HELLO, glibc would keep the pages of
 * their buffers. */
static void give_back(linnet_server *s) {
    enum { MANY = 256, SOME = 16 };
    if (s->closed < (s->peers ? MANY : SOME)) return;
    s->closed = 0;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

static void count(linnet_server *s, posix_peer *p) {
    uint64_t received, sent;
    ln_net_transport_counts(p->transport, &received, &sent);
    ln_sync_server_counted(s->core, p->stream, received, sent);
}

/* Sends the queued frames. Returns false if the peer was closed. */
static bool flush(linnet_server *s, posix_peer *p) {
    ln_net_flow flow = LN_NET_FLOWS;
    linnet_error error;
    const bool closing = ln_sync_server_closing(s->core, p->stream);
    if (!closing) ln_sync_server_fill(s->core, p->stream);
    if (!ln_net_stream_idle(p->stream) || !ln_net_transport_open(p->transport))
        flow = ln_net_transport_send(p->transport, p->stream, LN_NET_TURN, &error);
    count(s, p);
    /* A refused peer may still be sending. If this side closed the connection now, TCP would answer those bytes with a
     * reset, and the peer would lose REFUSE, which says why. The bytes are discarded until the peer closes the
     * connection, for a second at most. */
    const bool done = closing && ln_net_stream_idle(p->stream);
    p->refused = done && ln_net_stream_failure(p->stream) && ln_net_transport_open(p->transport);
    if (p->refused && flow == LN_NET_FLOWS) flow = ln_net_transport_discard(p->transport, LN_NET_TURN);
    if (flow == LN_NET_ENDED || flow == LN_NET_BROKEN || (done && !p->refused) || p->ended) {
        ln_sync_close_peer(s, p);
        return false;
    }
    if (closing && !p->closing_since) {
        p->closing_since = ln_sync_now();
        s->closing++;
    }
    watch(s, p);
    return true;
}

static void receive(linnet_server *s, posix_peer *p, uint64_t now) {
    linnet_error error;
    ln_net_flow flow;
    uint64_t before, after, sent;
    if (p->refused) return; /* flush() discards what arrives */
    ln_net_transport_counts(p->transport, &before, &sent);
    if (!ln_net_stream_failure(p->stream)) ln_sync_server_heard(s->core, p->stream, now);
    flow = ln_net_transport_receive(p->transport, p->stream, LN_NET_TURN, &error);
    ln_net_transport_counts(p->transport, &after, &sent);
    p->ended = flow == LN_NET_ENDED || (flow == LN_NET_BROKEN && !ln_net_stream_failure(p->stream));
}

/* Sends the core's frames to its peers until the core has no more frames. */
static void send_all(linnet_server *s) {
    ln_net_stream *stream;
    while ((stream = ln_sync_server_woken(s->core))) {
        posix_peer *p = ln_sync_server_owner(stream);
        if (ln_sync_server_resumed(s->core, stream)) ln_net_stream_received(stream, 0);
        flush(s, p);
    }
}

/* ---- accepting -------------------------------------------------------------------------------------------------- */

static void accept_peers(posix_listener *l, uint64_t now) {
    linnet_server *s = l->server;
    for (int i = 0; i < 64; i++) {
        ln_net_transport *transport;
        linnet_error error;
        posix_peer *p;
        if (ln_net_accept(l->listener, &transport, &error)) {
            /* Possibly out of descriptors. Accepts no connections for a moment, and continues to serve the open
             * ones. */
            ln_net_poller_change(s->poller, ln_net_listener_fd(l->listener), 0, l);
            l->closed_until = now + SECOND / 10;
            return;
        }
        if (!transport) return;
        p = calloc(1, sizeof *p);
        if (p) p->stream = ln_sync_server_connect(s->core, ln_net_transport_peer(transport), now);
        if (p && p->stream && ln_net_poller_add(s->poller, ln_net_transport_fd(transport), LN_NET_READ, p)) {
            p->transport = transport;
            p->mask = LN_NET_READ;
            p->next = s->peers;
            if (s->peers) s->peers->previous = p;
            s->peers = p;
            ln_sync_server_set_owner(p->stream, p);
            receive(s, p, now);
            flush(s, p);
            continue;
        }
        if (p && p->stream) ln_sync_server_disconnect(s->core, p->stream, now);
        ln_net_transport_free(transport);
        free(p);
    }
}

static posix_listener *listener_of(linnet_server *s, void *user) {
    for (int i = 0; i < s->listener_count; i++)
        if (user == &s->listeners[i]) return &s->listeners[i];
    return NULL;
}

/* ---- one turn of the loop --------------------------------------------------------------------------------------- */

static void old_things(linnet_server *s, uint64_t now) {
    for (int i = 0; i < s->listener_count; i++) {
        posix_listener *l = &s->listeners[i];
        if (!l->closed_until || now < l->closed_until) continue;
        l->closed_until = 0;
        ln_net_poller_change(s->poller, ln_net_listener_fd(l->listener), LN_NET_READ, l);
    }
    for (posix_peer *p = s->closing ? s->peers : NULL, *next; p; p = next) {
        next = p->next;
        if (p->closing_since && now - p->closing_since > SECOND) ln_sync_close_peer(s, p);
    }
    give_back(s);
    ln_sync_metrics_tick(s->metrics, now);
}

bool ln_sync_server_busy(const linnet_server *s) {
    for (const posix_peer *p = s->peers; p; p = p->next)
        if (!ln_net_stream_idle(p->stream)) return true;
    return false;
}

void ln_sync_server_turn(linnet_server *s, int timeout_ms) {
    ln_net_event ready[64];
    posix_peer *nows = s->nows;
    uint64_t now;
    int n;
    if (nows) timeout_ms = 0;
    if (timeout_ms || atomic_load(&s->waiting)) {
        pthread_mutex_unlock(&s->mutex);
        if (atomic_load(&s->waiting)) sched_yield();
        n = ln_net_poller_wait(s->poller, ready, 64, timeout_ms);
        pthread_mutex_lock(&s->mutex);
    } else {
        n = ln_net_poller_wait(s->poller, ready, 64, 0);
    }
    now = ln_sync_now();
    s->nows = NULL;
    while (nows) {
        posix_peer *p = nows;
        nows = p->now_next;
        p->now = false;
        receive(s, p, now);
        if (flush(s, p)) continue;
        for (int i = 0; i < n; i++)
            if (ready[i].user == p) ready[i].user = NULL;
    }
    for (int i = 0; i < n; i++) {
        if (!ready[i].user) continue;
        posix_listener *l = listener_of(s, ready[i].user);
        if (l) {
            accept_peers(l, now);
        } else if (ready[i].user == s) {
            char bytes[64];
            while (read(s->wake[0], bytes, sizeof bytes) == (ssize_t)sizeof bytes) {
            }
        } else if (!ln_sync_metrics_ready(s->metrics, ready[i].user, s->core, now)) {
            posix_peer *p = ready[i].user;
            receive(s, p, now);
            flush(s, p);
        }
    }
    send_all(s);
    ln_sync_server_tick(s->core, ln_sync_now());
    linnet_store_publish(s->store, NULL); /* these are averaged values, which the core wrote itself; the runs of updates
                                             publish their own writes */
    send_all(s);
    old_things(s, now);
}
