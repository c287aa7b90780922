/* link.c - one connection between a client and a host: a transport, a stream, and the message that is arriving. */
#define _POSIX_C_SOURCE 200809L
#include "remote/link.h"

#include "net/error.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "net/transport_flow.h"
#include "remote/clock.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A thread that sleeps needs tens of microseconds to wake up, which is longer than a small run takes. So a wait that
 * follows traffic by at most RECENT_NS looks again and again for SPIN_NS before it sleeps, as long as this succeeds
 * about as often as it fails; otherwise only one wait of PROBE does. */
enum { SPIN_NS = 50000, RECENT_NS = 1000000, MOST_SCORE = 8, PROBE = 16, NEVER = -1 };

struct ln_remote_link {
    ln_net_transport *transport;
    ln_net_stream *stream;
    ln_remote_receive *receive;
    ln_remote_direct *direct; /* NULL: all messages arrive in memory of the link */
    void *context;
    ln_remote_memory memory;
    unsigned char *message; /* the one that is arriving, of `total` bytes */
    size_t size;            /* allocated */
    uint64_t total, arrived;
    uint8_t type;
    bool sending;      /* a bulk message is queued */
    uint64_t moved_ns; /* when bytes were last moved */
    int score;         /* rises when spinning succeeds, and falls when it does not */
    unsigned waits;
    ln_net_refuse refused;
    bool was_refused;
    linnet_error broken; /* code 0: the connection works */
};

static ln_net_refusal place(void *context, ln_net_stream *stream, const ln_net_header *header, void **destination) {
    ln_remote_link *link = context;
    (void)stream;
    if (header->offset == 0 && link->arrived == link->total) { /* another message begins */
        if (header->total > link->size || link->message == NULL) {
            link->memory.give(link->memory.context, link->message, link->size);
            const size_t size = header->total > 0 && header->total < SIZE_MAX / 2 ? (size_t)header->total : 1;
            link->message = size >= header->total ? link->memory.take(link->memory.context, size) : NULL;
            link->size = link->message != NULL ? size : 0;
        }
        link->type = header->type, link->total = header->total, link->arrived = 0;
    }
    if (header->type != link->type || header->total != link->total || header->offset != link->arrived)
        return LN_NET_MALFORMED;
    if (link->message == NULL) return LN_NET_FINE;
    *destination = link->message + link->arrived;
    if (link->direct != NULL && link->arrived > 0) {
        const ln_remote_arriving message = {link->message, link->arrived, link->total, link->type};
        unsigned char *elsewhere = link->direct(link->context, &message);
        if (elsewhere != NULL) *destination = elsewhere;
    }
    return LN_NET_FINE;
}

static ln_net_refusal frame(void *context, ln_net_stream *stream, const ln_net_header *header, const void *payload) {
    ln_remote_link *link = context;
    (void)stream;
    if (header->type == LN_REMOTE_REFUSE) {
        link->was_refused = ln_net_refuse_read(&link->refused, payload, header->length);
        return link->was_refused ? LN_NET_FINE : LN_NET_MALFORMED;
    }
    if (!ln_remote_protocol.messages[header->type].bulk)
        return link->receive(link->context, link, header->type, payload, header->length);
    link->arrived += header->length;
    if (link->arrived < link->total) return LN_NET_FINE;
    return link->receive(link->context, link, link->type, link->message, (size_t)link->total);
}

static void released(void *context, ln_net_stream *stream, uint64_t tag) {
    (void)stream, (void)tag;
    ((ln_remote_link *)context)->sending = false;
}

static void *take(void *context, size_t size) {
    (void)context;
    return malloc(size);
}

static void give(void *context, void *memory, size_t size) {
    (void)context, (void)size;
    free(memory);
}

unsigned char *ln_remote_link_take(ln_remote_link *link, size_t *size) {
    unsigned char *message = link->message;
    *size = link->size;
    link->message = NULL, link->size = 0;
    return message;
}

ln_remote_link *ln_remote_link_new(ln_net_transport *transport, const ln_remote_memory *memory,
                                   ln_remote_receive *receive, void *context) {
    ln_remote_link *link = calloc(1, sizeof *link);
    void *places = malloc(ln_net_stream_bytes(1));
    if (link == NULL || places == NULL) {
        free(link);
        free(places);
        ln_net_transport_free(transport);
        return NULL;
    }
    const ln_net_handler handler = {.context = link, .place = place, .frame = frame, .released = released};
    *link = (ln_remote_link){.transport = transport, .receive = receive, .context = context};
    link->memory = memory != NULL ? *memory : (ln_remote_memory){.take = take, .give = give};
    link->stream = ln_net_stream_init(places, 1, &ln_remote_protocol, &handler);
    link->score = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? MOST_SCORE : NEVER;
    return link;
}

void ln_remote_link_free(ln_remote_link *link) {
    if (link == NULL) return;
    ln_net_transport_free(link->transport);
    free(link->stream);
    link->memory.give(link->memory.context, link->message, link->size);
    free(link);
}

void ln_remote_link_set_direct(ln_remote_link *link, ln_remote_direct *direct) { link->direct = direct; }

void ln_remote_link_open(ln_remote_link *link, uint32_t chunk) { ln_net_stream_open(link->stream, 0, 0, 0, chunk); }

/* The peer's reason, if it has sent one, says more than the end of the connection. */
static linnet_status lose(ln_remote_link *link, const linnet_error *why, linnet_error *error) {
    const char *peer = ln_net_transport_peer(link->transport);
    if (link->was_refused) {
        ln_sync_fail(&link->broken, LINNET_REFUSED, "%s ended the connection: %s", peer, link->refused.text);
        ln_sync_got(&link->broken, "the reason '%s'", ln_net_refusal_name(link->refused.why));
    } else if (why != NULL && why->code != 0) {
        link->broken = *why;
    } else {
        ln_sync_fail(&link->broken, LINNET_CONNECTION_LOST, "%s closed the connection", peer);
        ln_sync_hint(&link->broken, "see what the other side printed, and start it again if it has ended");
    }
    *error = link->broken;
    return (linnet_status)error->code;
}

/* Waits until something can be moved on one of the links. */
static void wait(ln_remote_link *const *links, int count, int timeout_ms) {
    struct pollfd fds[LN_REMOTE_TOGETHER];
    nfds_t n = 0;
    for (int i = 0; i < count && n < LN_REMOTE_TOGETHER; i++) {
        if (links[i]->broken.code != 0) continue;
        const int wants = ln_net_transport_wants(links[i]->transport, links[i]->stream);
        fds[n++] = (struct pollfd){
            .fd = ln_net_transport_fd(links[i]->transport),
            .events = (short)((wants & LN_NET_READ ? POLLIN : 0) | (wants & LN_NET_WRITE ? POLLOUT : 0)),
        };
        if (wants & LN_NET_NOW) timeout_ms = 0;
    }
    poll(fds, n, timeout_ms);
}

/* Moves what can be moved; *moved says whether something was. */
static linnet_status move(ln_remote_link *link, bool *moved, linnet_error *error) {
    linnet_error why = {0};
    uint64_t received[2], sent[2];
    if (link->broken.code != 0) {
        *error = link->broken;
        return (linnet_status)error->code;
    }
    ln_net_transport_counts(link->transport, &received[0], &sent[0]);
    ln_net_flow flow = ln_net_transport_send(link->transport, link->stream, LN_NET_TURN, &why);
    if (flow != LN_NET_ENDED && flow != LN_NET_BROKEN)
        flow = ln_net_transport_receive(link->transport, link->stream, LN_NET_TURN, &why);
    else { /* the peer may have said why before it closed */
        linnet_error ignored;
        while (ln_net_transport_receive(link->transport, link->stream, LN_NET_TURN, &ignored) == LN_NET_FLOWS) continue;
    }
    if (flow == LN_NET_BROKEN && ln_net_stream_failure(link->stream) != LN_NET_FINE) /* REFUSE is still to be sent */
        ln_net_transport_send(link->transport, link->stream, LN_NET_TURN, &(linnet_error){0});
    if (flow == LN_NET_ENDED || flow == LN_NET_BROKEN || link->was_refused) return lose(link, &why, error);
    ln_net_transport_counts(link->transport, &received[1], &sent[1]);
    if (received[1] == received[0] && sent[1] == sent[0]) return LINNET_OK;
    link->moved_ns = ln_remote_now_ns();
    *moved = true;
    return LINNET_OK;
}

static linnet_status move_all(ln_remote_link *const *links, int count, bool *moved, linnet_error *error) {
    linnet_error ignored;
    for (int i = 1; i < count; i++) (void)move(links[i], moved, &ignored);
    return move(links[0], moved, error);
}

/* Tells whether a wait on this link may begin by spinning. One processor has other work to do meanwhile. */
static bool may_spin(ln_remote_link *link, uint64_t now) {
    if (link->score == NEVER || now - link->moved_ns > RECENT_NS) return false;
    return link->waits++ % PROBE == 0 || link->score > 0;
}

/* Looks for something to move for SPIN_NS. Whoever else wants to run on this processor may; if that takes longer, the
 * processors have enough to do. */
static linnet_status spin(ln_remote_link *const *links, int count, uint64_t now, bool *moved, linnet_error *error) {
    const uint64_t until = now + SPIN_NS;
    linnet_status status = LINNET_OK;
    int *score = &links[0]->score;
    while (status == LINNET_OK && !*moved && now < until) {
        sched_yield();
        status = move_all(links, count, moved, error);
        now = ln_remote_now_ns();
    }
    if (now > until + SPIN_NS)
        *score = 0;
    else if (*moved)
        *score += *score < MOST_SCORE;
    else
        *score -= *score > 0;
    return status;
}

linnet_status ln_remote_links_turn(ln_remote_link *const *links, int count, int timeout_ms, linnet_error *error) {
    bool moved = false;
    linnet_status status = move_all(links, count, &moved, error);
    if (status != LINNET_OK || moved || timeout_ms == 0) return status;
    const uint64_t now = ln_remote_now_ns();
    if (may_spin(links[0], now)) status = spin(links, count, now, &moved, error);
    if (status == LINNET_OK && !moved) wait(links, count, timeout_ms);
    return status;
}

linnet_status ln_remote_link_turn(ln_remote_link *link, int timeout_ms, linnet_error *error) {
    return ln_remote_links_turn(&link, 1, timeout_ms, error);
}

linnet_status ln_remote_link_begin(ln_remote_link *link, uint8_t type, const void *bytes, size_t size,
                                   linnet_error *error) {
    const ln_net_header header = {.type = type};
    linnet_status status = LINNET_OK;
    if (!ln_remote_protocol.messages[type].bulk) {
        while (status == LINNET_OK && !ln_net_stream_control(link->stream, &header, bytes, size))
            status = ln_remote_link_turn(link, -1, error);
    } else if (link->broken.code == 0) {
        link->sending = ln_net_stream_bulk(link->stream, &header, bytes, size, 1);
        if (!link->sending) status = lose(link, NULL, error);
    }
    return link->broken.code != 0 ? lose(link, &link->broken, error) : status;
}

linnet_status ln_remote_link_gather(ln_remote_link *link, uint8_t type, const ln_net_slice *head,
                                    const ln_net_slice *rest, linnet_error *error) {
    const ln_net_header header = {.type = type};
    if (link->broken.code == 0) link->sending = ln_net_stream_gather(link->stream, &header, head, rest, 1);
    return link->sending && link->broken.code == 0 ? LINNET_OK : lose(link, &link->broken, error);
}

bool ln_remote_link_sends(const ln_remote_link *link) {
    return link->broken.code == 0 && (link->sending || !ln_net_stream_idle(link->stream));
}

linnet_status ln_remote_link_send(ln_remote_link *link, uint8_t type, const void *bytes, size_t size,
                                  linnet_error *error) {
    linnet_status status = ln_remote_link_begin(link, type, bytes, size, error);
    while (status == LINNET_OK && ln_remote_link_sends(link)) status = ln_remote_link_turn(link, -1, error);
    return status;
}

linnet_status ln_remote_link_pause(ln_remote_link *link, bool paused, linnet_error *error) {
    ln_net_stream_pause(link->stream, paused);
    if (paused || ln_net_stream_received(link->stream, 0) == LN_NET_FINE) return LINNET_OK;
    return ln_remote_link_turn(link, 0, error); /* sends REFUSE, and says why */
}

void ln_remote_link_refuse(ln_remote_link *link, ln_net_refusal why, const char *text) {
    linnet_error ignored;
    ln_net_stream_refuse(link->stream, why, 0, text);
    while (!ln_net_stream_idle(link->stream) &&
           ln_net_transport_send(link->transport, link->stream, LN_NET_TURN, &ignored) == LN_NET_FLOWS)
        continue;
}

void ln_remote_link_break(ln_remote_link *link, const linnet_error *why) {
    if (link->broken.code != 0) return;
    link->broken = *why;
    shutdown(ln_net_transport_fd(link->transport), SHUT_RDWR); /* the peer learns of it now */
}

uint64_t ln_remote_link_sent(const ln_remote_link *link) {
    uint64_t received, sent;
    ln_net_transport_counts(link->transport, &received, &sent);
    return sent;
}

bool ln_remote_link_works(const ln_remote_link *link) { return link->broken.code == 0; }
