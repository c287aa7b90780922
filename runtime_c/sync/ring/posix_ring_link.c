/* posix_ring_link.c - the connections of a ring as such: waits for them, moves their bytes, frees them. */
#define _POSIX_C_SOURCE 200809L

#include "sync/ring/posix_ring_link.h"

#include "net/stream.h"
#include "net/transport_flow.h"
#include "net/transport_listen.h"
#include "sync/ring/posix_ring_state.h"

#include <poll.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_POLLED = 64 };

uint64_t ln_sync_ring_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void ln_sync_ring_link_free(ring_link *link) {
    if (!link) return;
    ln_net_transport_free(link->transport);
    free(link->stream);
    free(link->text);
    free(link);
}

bool ln_sync_ring_over(ln_net_flow flow) { return flow == LN_NET_ENDED || flow == LN_NET_BROKEN; }

static void move(ring_link *link) {
    if (ln_sync_ring_over(link->flow)) return;
    link->flow = ln_net_transport_receive(link->transport, link->stream, LN_NET_TURN, &link->error);
    /* If this rank refused the peer's bytes, still sends the reason to the peer. */
    if (ln_sync_ring_over(link->flow) && ln_net_stream_failure(link->stream) == LN_NET_FINE) return;
    const ln_net_flow sent = ln_net_transport_send(link->transport, link->stream, LN_NET_TURN,
                                                   ln_sync_ring_over(link->flow) ? NULL : &link->error);
    if (!ln_sync_ring_over(link->flow)) link->flow = sent;
}

void ln_sync_ring_turn(ring_link *const *links, int count, ln_net_listener *const *listeners, int listener_count,
                       int wait_ms) {
    struct pollfd polled[MOST_POLLED];
    int used = 0;
    for (int i = 0; i < listener_count; i++)
        polled[used++] = (struct pollfd){.fd = ln_net_listener_fd(listeners[i]), .events = POLLIN};
    for (int i = 0; i < count; i++) {
        if (!links[i] || ln_sync_ring_over(links[i]->flow)) continue;
        const int wants = ln_net_transport_wants(links[i]->transport, links[i]->stream);
        if (wants & LN_NET_NOW) wait_ms = 0;
        if (used == MOST_POLLED) { /* when many ranks meet, the remaining links are checked every few milliseconds */
            if (wait_ms > 5) wait_ms = 5;
            continue;
        }
        polled[used++] = (struct pollfd){
            .fd = ln_net_transport_fd(links[i]->transport),
            .events = (short)((wants & LN_NET_READ ? POLLIN : 0) | (wants & LN_NET_WRITE ? POLLOUT : 0)),
        };
    }
    poll(polled, (nfds_t)used, wait_ms < 0 ? 0 : wait_ms);
    for (int i = 0; i < count; i++)
        if (links[i]) move(links[i]);
}
