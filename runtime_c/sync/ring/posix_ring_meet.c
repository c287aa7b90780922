/* posix_ring_meet.c - how the ranks of a ring find one another. Every rank sends its address to rank 0, rank 0 sends
 * the table of addresses to all ranks, then each rank connects to its right neighbour (docs/protocol.md, "Rings"). */
#define _GNU_SOURCE /* accept4, syscall, SO_PEERCRED */
#include "sync/ring/posix_ring_meet.h"

#include "net/error.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "net/transport_address.h"
#include "net/transport_connect.h"
#include "net/transport_flow.h"
#include "net/transport_listen.h"
#include "net/transport_medium.h"
#include "sync/ring/posix_ring_state.h"
#include "sync/ring/posix_ring_greet.h"
#include "sync/ring/posix_ring_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RETRY_FIRST_MS = 20, RETRY_LAST_MS = 500, HELLO_MS = 5000, STRANGERS = 16 };
typedef struct meeting {
    linnet_ring *ring;
    const linnet_ring_config *config;
    ln_net_listener *listener, *door; /* where our left neighbour connects; where rank 0 accepts all ranks */
    ring_link **links; /* rank 0's links to other ranks and to unknown peers; there is room for three more */
    int count;
    ring_link *left, *right, *zero;
    char *table; /* text lines: the ring's id, then the address of each rank */
    uint64_t until;
} meeting;

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static bool is_loopback(const char *host) {
    return !host[0] || strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 || strncmp(host, "127.", 4) == 0;
}

/* Chooses where this rank listens if the config does not say: a path with the rank's number, or a port that the system
 * chooses. */
static void own_address(const ln_net_address *meeting, int rank, char *text, size_t size) {
    if (meeting->kind != LN_NET_TCP)
        snprintf(text, size, "%s:%s.%d", meeting->kind == LN_NET_SHM ? "shm" : "unix", meeting->path, rank);
    else
        snprintf(text, size, is_loopback(meeting->host) ? ":0" : "*:0");
}

static bool is_everywhere(const char *address) {
    return strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0;
}

/* Copies `address`. If `address` has no host, adds the host of the address `host`. */
static void reached_at(const char *address, const char *host, char *text, size_t size) {
    const char *port = strrchr(address, ':'), *end = strrchr(host, ':');
    if (is_everywhere(address) && end)
        snprintf(text, size, "%.*s%s", (int)(end - host), host, port);
    else
        snprintf(text, size, "%s", address);
}

/* Copies line `i` of the table. */
static bool line_of(const char *table, int i, char *text, size_t size) {
    while (i-- > 0 && table) table = (table = strchr(table, '\n')) ? table + 1 : NULL;
    const char *end = table ? strchr(table, '\n') : NULL;
    if (!end || (size_t)(end - table) >= size) return false;
    snprintf(text, size, "%.*s", (int)(end - table), table);
    return true;
}

/* ---- the steps of a meeting -------------------------------------------------------------------------------------- */

static linnet_status late(meeting *m, linnet_error *error) {
    const ln_sync_ring *core = &m->ring->core;
    int missing = 0, ranks = 0;
    if (core->rank == 0 && !m->table) {
        for (int rank = core->size - 1; rank > 0; rank--) {
            bool here = false;
            for (int i = 0; i < m->count; i++)
                here = here || (ln_sync_ring_has_text(m->links[i]) && m->links[i]->rank == rank);
            if (here) continue;
            missing = rank;
            ranks++;
        }
    } else if (m->table) {
        missing = m->right && m->right->open ? ln_sync_ring_left(core) : ln_sync_ring_right(core);
        ranks = 1;
    }
    ln_sync_fail(error, LINNET_TIMED_OUT, "rank %d%s did not join the ring within %.1f s", missing,
                 ranks > 1 ? " and others" : "", m->ring->timeout_ms / 1000.0);
    ln_sync_at(error, m->config->address);
    if (ranks > 0) ln_sync_got(error, "%d of %d ranks", core->size - ranks, core->size);
    ln_sync_hint(error, "start all ranks with the same address; a firewall may block their connections");
    if (error) error->op_index = missing;
    return LINNET_TIMED_OUT;
}

/* Accepts the connections that wait at both listeners. */
static linnet_status accept_all(meeting *m, linnet_error *error) {
    ln_net_listener *const doors[2] = {m->listener, m->door};
    for (int d = 0; d < 2; d++)
        while (doors[d] && m->count < m->ring->core.size + STRANGERS) {
            ln_net_transport *transport = NULL;
            if (ln_net_accept(doors[d], &transport, NULL) || !transport) break;
            ring_link *link = ln_sync_ring_link_new(m->ring, transport, true);
            if (!link) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a connection of the ring");
            m->links[m->count++] = link;
        }
    return LINNET_OK;
}

static void forget(meeting *m, int i) {
    ln_sync_ring_link_free(m->links[i]);
    m->links[i] = m->links[--m->count];
}

/* Drops closed links and finds the link of the left neighbour. A rank's new link replaces its old one. */
static void sort_links(meeting *m) {
    const uint64_t now = ln_sync_ring_clock();
    for (int i = m->count - 1; i >= 0; i--) {
        ring_link *link = m->links[i];
        if (link->greeted && link->rank < 0 && m->ring->id) {
            if (link->claim == m->ring->id)
                ln_sync_ring_welcome(link, ln_sync_ring_left(&m->ring->core));
            else
                ln_sync_ring_refuse(link, LN_NET_UNKNOWN_JOB, "this is a different ring");
        }
        const bool over = ln_sync_ring_over(link->flow);
        const bool failed = ln_net_stream_failure(link->stream) && ln_net_stream_idle(link->stream);
        if (over || failed || (link->rank < 0 && !link->greeted && now - link->since > HELLO_MS)) {
            forget(m, i);
        } else if (link->open && !m->left) {
            m->left = link;
            m->links[i] = m->links[--m->count];
        }
    }
    for (int i = 0; i < m->count; i++)
        for (int k = m->count - 1; k > i; k--)
            if (m->links[i]->rank >= 0 && m->links[i]->rank == m->links[k]->rank && !m->table) {
                ring_link *newer = m->links[k];
                m->links[k] = m->links[i];
                m->links[i] = newer;
                forget(m, k);
            }
}

static linnet_status turn(meeting *m, ring_link *ours, linnet_error *error) {
    ln_net_listener *doors[2];
    int open = 0;
    const uint64_t now = ln_sync_ring_clock();
    if (now >= m->until) return late(m, error);
    if (m->listener) doors[open++] = m->listener;
    if (m->door) doors[open++] = m->door;
    ring_link *all[3] = {ours, m->left, m->right == ours ? NULL : m->right};
    memcpy(m->links + m->count, all, sizeof all); /* `links` has room for three more links */
    const uint64_t left = m->until - now;
    ln_sync_ring_turn(m->links, m->count + 3, doors, open, left < RETRY_FIRST_MS ? (int)left : RETRY_FIRST_MS);
    linnet_status status = accept_all(m, error);
    sort_links(m);
    return status;
}

/* Connects to `address` again and again until a peer sends WELCOME. */
static linnet_status connect_to(meeting *m, const char *address, ln_sync_ring_purpose purpose, ring_link **out,
                                linnet_error *error) {
    uint64_t wait = RETRY_FIRST_MS;
    for (;;) {
        ln_net_transport *transport;
        linnet_status status = ln_net_connect(address, m->ring->security, m->ring->insecure, &transport, error);
        if (status && status != LINNET_UNREACHABLE) return status;
        ring_link *link = status ? NULL : ln_sync_ring_link_new(m->ring, transport, false);
        if (!status && !link) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a connection");
        if (link) ln_sync_ring_say_hello(link, purpose);
        while (link && link->rank < 0 && !link->told && !ln_sync_ring_over(link->flow))
            if ((status = turn(m, link, error))) {
                ln_sync_ring_link_free(link);
                return status;
            }
        if (link && link->rank >= 0) {
            *out = link;
            return LINNET_OK;
        }
        if (link && (link->told || link->error.code == LINNET_NOT_AUTHENTICATED)) {
            if (error) *error = link->error;
            ln_sync_at(error, address);
            status = (linnet_status)link->error.code;
            ln_sync_ring_link_free(link);
            return status;
        }
        ln_sync_ring_link_free(link); /* the peer is not there yet */
        for (const uint64_t again = ln_sync_ring_clock() + wait; ln_sync_ring_clock() < again;)
            if ((status = turn(m, NULL, error))) return status;
        wait = wait * 2 < RETRY_LAST_MS ? wait * 2 : RETRY_LAST_MS;
    }
}

/* Called by rank 0: collects all addresses and sends the table to all ranks. */
static linnet_status gather(meeting *m, linnet_error *error) {
    const int size = m->ring->core.size;
    char id[32];
    linnet_status status;
    for (int here = 0; here < size - 1;) {
        if ((status = turn(m, NULL, error))) return status;
        here = 0;
        for (int i = 0; i < m->count; i++) here += m->links[i]->meets && ln_sync_ring_has_text(m->links[i]);
    }
    const size_t room = (size_t)LN_SYNC_RING_ADDRESS * ((size_t)size + 1);
    if (!(m->table = malloc(room))) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a ring");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    m->ring->id = ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) ^ (uint64_t)getpid() << 40;
    snprintf(id, sizeof id, "%016llx", (unsigned long long)m->ring->id);
    size_t used = (size_t)snprintf(m->table, room, "%s\n%.150s\n", id, ln_net_listener_address(m->listener));
    for (int rank = 1; rank < size; rank++)
        for (int i = 0; i < m->count; i++)
            if (m->links[i]->rank == rank && m->links[i]->meets) {
                char text[LN_SYNC_RING_ADDRESS];
                reached_at(m->links[i]->text, ln_net_transport_peer(m->links[i]->transport), text, sizeof text);
                used += (size_t)snprintf(m->table + used, room - used, "%.190s\n", text);
            }
    for (int i = 0; i < m->count; i++)
        if (m->links[i]->meets) ln_sync_ring_send_text(m->links[i], m->table);
    for (bool idle = false; !idle;) {
        if ((status = turn(m, NULL, error))) return status;
        idle = true;
        for (int i = 0; i < m->count; i++)
            idle = idle && (!m->links[i]->meets || ln_net_stream_idle(m->links[i]->stream));
    }
    return LINNET_OK;
}

/* Called by the other ranks: sends this rank's address to rank 0, and receives the table of all addresses. */
static linnet_status ask(meeting *m, linnet_error *error) {
    linnet_status status = connect_to(m, m->config->address, LN_SYNC_RING_TO_MEET, &m->zero, error);
    char id[32];
    if (status) return status;
    ln_sync_ring_send_text(m->zero, ln_net_listener_address(m->listener));
    m->until = ln_sync_ring_clock() + (uint64_t)m->ring->timeout_ms + 1000; /* rank 0 knows which ranks are late */
    while (!ln_sync_ring_has_text(m->zero)) {
        if ((status = turn(m, m->zero, error))) return status;
        if (ln_sync_ring_has_text(m->zero) || !(m->zero->told || ln_sync_ring_over(m->zero->flow))) continue;
        if (!m->zero->told) {
            ln_sync_fail(&m->zero->error, LINNET_CONNECTION_LOST, "rank 0 was lost before the ring was complete");
            ln_sync_hint(&m->zero->error, "see the error of rank 0; another process may have joined with this rank");
        }
        ln_sync_at(&m->zero->error, m->config->address);
        m->zero->error.op_index = 0;
        if (error) *error = m->zero->error;
        return (linnet_status)m->zero->error.code;
    }
    m->table = m->zero->text;
    m->zero->text = NULL;
    if (!line_of(m->table, 0, id, sizeof id))
        return ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "rank 0 sent no table of addresses");
    m->ring->id = strtoull(id, NULL, 16);
    return LINNET_OK;
}

static linnet_status join(meeting *m, linnet_error *error) {
    const ln_sync_ring *core = &m->ring->core;
    const int right = ln_sync_ring_right(core);
    char line[LN_SYNC_RING_ADDRESS], address[LN_SYNC_RING_ADDRESS];
    linnet_status status;
    if (!line_of(m->table, 1 + right, line, sizeof line)) {
        ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "the table of addresses has no rank %d", right);
        return LINNET_PROTOCOL_ERROR;
    }
    reached_at(line, m->config->address, address, sizeof address); /* the table may lack rank 0's host */
    if ((status = connect_to(m, address, LN_SYNC_RING_AS_NEIGHBOUR, &m->right, error))) return status;
    while (!m->left || !ln_net_stream_idle(m->left->stream)) /* also waits until this rank's WELCOME is sent */
        if ((status = turn(m, NULL, error))) return status;
    return LINNET_OK;
}

static linnet_status listen_at(meeting *m, linnet_error *error) {
    ln_net_address parts;
    char text[LN_SYNC_RING_ADDRESS];
    linnet_status status = ln_net_address_parse(m->config->address, &parts, error);
    if (status) return status;
    if (parts.kind == LN_NET_TCP && strcmp(parts.port, "0") == 0) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "rank 0 cannot use port 0: the other ranks would not find it");
        ln_sync_at(error, m->config->address);
        return ln_sync_hint(error, "give a port number, or unix:PATH on one machine");
    }
    own_address(&parts, m->ring->core.rank, text, sizeof text);
    status = ln_net_listen(m->config->listen ? m->config->listen : text, m->ring->security, m->ring->insecure,
                           &m->listener, error);
    if (!status && m->ring->core.rank == 0)
        status = ln_net_listen(m->config->address, m->ring->security, m->ring->insecure, &m->door, error);
    return status;
}

/* Called when rank 0 gives up: tells the other ranks why. */
static void give_up(meeting *m, const char *why) {
    const uint64_t until = ln_sync_ring_clock() + 200;
    for (int i = 0; i < m->count; i++)
        if (m->links[i]->meets) ln_net_stream_refuse(m->links[i]->stream, LN_NET_TOO_SLOW, 0, why);
    while (m->count > 0 && ln_sync_ring_clock() < until) {
        ln_sync_ring_turn(m->links, m->count, NULL, 0, 5);
        sort_links(m);
    }
}

linnet_status ln_sync_ring_meet(linnet_ring *ring, const linnet_ring_config *config, linnet_error *error) {
    meeting m = {.ring = ring, .config = config, .until = ln_sync_ring_clock() + (uint64_t)ring->timeout_ms};
    m.links = calloc((size_t)ring->core.size + STRANGERS + 3, sizeof *m.links);
    linnet_status status =
        m.links ? listen_at(&m, error) : ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a ring");
    if (!status) status = ring->core.rank == 0 ? gather(&m, error) : ask(&m, error);
    if (!status) status = join(&m, error);
    if (status) {
        if (ring->core.rank == 0 && error) give_up(&m, error->what);
        ln_sync_ring_link_free(m.left);
        ln_sync_ring_link_free(m.right);
    } else {
        ring->left = m.left;
        ring->right = m.right;
    }
    for (int i = 0; m.links && i < m.count; i++) ln_sync_ring_link_free(m.links[i]);
    ln_sync_ring_link_free(m.zero);
    ln_net_listener_free(m.listener);
    ln_net_listener_free(m.door);
    free(m.links);
    free(m.table);
    return status;
}
