/* posix_drive.c - the loop inside a blocking call. It opens and closes connections as the core requests, moves bytes,
 * and sleeps when nothing can move. Polling again for a moment before sleeping costs more than it gains, because other
 * processes need the CPU. */
#define _POSIX_C_SOURCE 200809L
#include "sync/worker/posix_drive.h"

#include "net/transport_connect.h"
#include "net/transport_flow.h"
#include "sync/worker/posix_worker_state.h"
#include "sync/worker/worker_core.h"
#include "sync/worker/worker_work.h"

#include <errno.h>
#include <time.h>

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void lose(linnet_worker *worker, int i, const linnet_error *why) {
    posix_link *link = &worker->links[i];
    uint64_t received, sent;
    if (link->transport) {
        ln_net_transport_counts(link->transport, &received, &sent);
        link->received += received;
        link->sent += sent;
    }
    ln_net_transport_free(link->transport);
    link->transport = NULL;
    ln_sync_worker_lost(worker->core, i, why);
}

static void fulfil(linnet_worker *worker, int i) {
    posix_link *link = &worker->links[i];
    linnet_error error = {0};
    switch (ln_sync_worker_wish(worker->core, i)) {
    case LN_SYNC_WISH_CONNECT:
        if (ln_net_connect(link->address, worker->security, worker->insecure, &link->transport, &error))
            lose(worker, i, &error);
        else
            ln_sync_worker_connected(worker->core, i);
        break;
    case LN_SYNC_WISH_CLOSE: /* waits, so that the peer can read the reason first */
        if (link->transport)
            ln_net_transport_send(link->transport, ln_sync_worker_stream(worker->core, i), LN_NET_TURN, &error);
        lose(worker, i, NULL);
        break;
    default: break;
    }
}

static void send_what_waits(linnet_worker *worker, int i) {
    linnet_error error = {0};
    posix_link *link = &worker->links[i];
    if (!link->transport) return;
    const ln_net_flow flow =
        ln_net_transport_send(link->transport, ln_sync_worker_stream(worker->core, i), LN_NET_TURN, &error);
    /* First reads the bytes that the peer sent before it closed. */
    if (flow == LN_NET_ENDED || flow == LN_NET_BROKEN) {
        ln_net_flow rest;
        linnet_error ignored;
        do
            rest = ln_net_transport_receive(link->transport, ln_sync_worker_stream(worker->core, i), LN_NET_TURN,
                                            &ignored);
        while (rest == LN_NET_FLOWS);
        lose(worker, i, error.code ? &error : NULL);
    }
}

/* Returns true if something arrived. */
static bool receive_what_came(linnet_worker *worker, int i) {
    linnet_error error = {0};
    posix_link *link = &worker->links[i];
    uint64_t before, after, sent;
    if (!link->transport) return false;
    ln_net_transport_counts(link->transport, &before, &sent);
    const ln_net_flow flow =
        ln_net_transport_receive(link->transport, ln_sync_worker_stream(worker->core, i), LN_NET_TURN, &error);
    ln_net_transport_counts(link->transport, &after, &sent);
    if (flow == LN_NET_ENDED || flow == LN_NET_BROKEN) lose(worker, i, error.code ? &error : NULL);
    return flow == LN_NET_FLOWS || after != before;
}

/* Returns true if something arrived. */
static bool turn(linnet_worker *worker) {
    bool came = false;
    for (int i = 0; i < worker->link_count; i++) fulfil(worker, i);
    ln_sync_worker_advance(worker->core);
    for (int i = 0; i < worker->link_count; i++) send_what_waits(worker, i);
    for (int i = 0; i < worker->link_count; i++) came = receive_what_came(worker, i) || came;
    return came;
}

void ln_worker_turn(linnet_worker *worker) { turn(worker); }

/* Sleeps until a transport is ready or the core wants to continue. */
static void sleep_until_ready(linnet_worker *worker) {
    const uint64_t deadline = ln_sync_worker_deadline(worker->core), now = now_ns();
    int timeout = deadline > now ? (int)((deadline - now) / 1000000) + 1 : 0;
    nfds_t count = 0;
    for (int i = 0; i < worker->link_count; i++) {
        ln_net_transport *transport = worker->links[i].transport;
        if (!transport) continue;
        const int wants = ln_net_transport_wants(transport, ln_sync_worker_stream(worker->core, i));
        if (wants & LN_NET_NOW) timeout = 0;
        worker->fds[count++] = (struct pollfd){
            .fd = ln_net_transport_fd(transport),
            .events = (short)((wants & LN_NET_READ ? POLLIN : 0) | (wants & LN_NET_WRITE ? POLLOUT : 0)),
        };
    }
    if (poll(worker->fds, count, timeout) < 0 && errno == EINTR && worker->interrupted &&
        worker->interrupted(worker->interrupted_context))
        ln_sync_worker_interrupt(worker->core);
}

linnet_status ln_worker_drive(linnet_worker *worker, linnet_error *error) {
    linnet_status status = LINNET_OK;
    for (;;) {
        const bool came = turn(worker);
        ln_sync_worker_advance(worker->core);
        if (ln_sync_worker_finished(worker->core, &status, error)) break;
        if (!came) sleep_until_ready(worker);
    }
    for (int i = 0; !status && i < worker->link_count; i++)
        send_what_waits(worker, i); /* sends READY, which makes this
                                     * worker a member */
    /* Closes connections that were given up. After this, none of their bytes may be received or sent. */
    for (int i = 0; status && i < worker->link_count; i++) fulfil(worker, i);
    return status;
}
