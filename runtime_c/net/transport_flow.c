/* transport_flow.c - moves bytes between a stream and its medium, within a bound.
 * Also computes the events to poll for. */
#define _GNU_SOURCE /* accept4, syscall, SO_PEERCRED */
#include "net/transport_flow.h"

#include "net/error.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "net/transport_medium.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* Runs the remaining stages of opening. */
static ln_net_flow open_up(ln_net_transport *transport, linnet_error *error) {
    while (transport->stage) {
        ln_net_flow flow = transport->stage(transport, error);
        if (flow != LN_NET_FLOWS) return flow;
    }
    return LN_NET_FLOWS;
}

static ln_net_flow outcome(long moved) {
    return moved == LN_NET_WOULD_BLOCK ? LN_NET_BLOCKED : moved == LN_NET_END_OF_FILE ? LN_NET_ENDED : LN_NET_BROKEN;
}

/* Tells whether the peer has closed both directions, even if there is unread data. poll reports this even when it is
 * asked for no events. If an owner kept such a connection for a paused stream, poll would wake the owner again and
 * again. */
static bool hung_up(const ln_net_transport *transport) {
    struct pollfd state = {transport->fd, 0, 0};
    return poll(&state, 1, 0) > 0;
}

/* Tells whether the first received bytes are a TLS alert. The peer then uses TLS, and this side does not. */
static bool speaks_tls(const ln_net_transport *transport, const unsigned char *data, size_t size) {
    return transport->received == 0 && !transport->tls && size >= 2 && data[0] == 0x15 && data[1] == 0x03;
}

ln_net_flow ln_net_transport_receive(ln_net_transport *transport, ln_net_stream *stream, size_t bound,
                                     linnet_error *error) {
    ln_net_flow flow = open_up(transport, error);
    if (flow != LN_NET_FLOWS) return flow;
    for (size_t moved = 0; moved < bound;) {
        ln_net_refusal refusal;
        void *data;
        size_t size;
        long got;
        ln_net_stream_space(stream, &data, &size);
        transport->read_blocked = false;
        if (!size) return hung_up(transport) ? LN_NET_ENDED : LN_NET_BLOCKED;
        if (size > bound - moved) size = bound - moved;
        got = transport->medium->read(transport, data, size, error);
        if (got <= 0) {
            transport->read_blocked = got == LN_NET_WOULD_BLOCK;
            if (transport->read_blocked && transport->medium->expect)
                transport->medium->expect(transport, ln_net_stream_expects(stream));
            return outcome(got);
        }
        if (speaks_tls(transport, data, (size_t)got)) {
            ln_sync_fail(error, LINNET_NOT_AUTHENTICATED, "the peer uses TLS, but no key was given here");
            ln_sync_at(error, transport->peer);
            ln_sync_hint(error, "give both sides the same key (--key FILE)");
            return LN_NET_BROKEN;
        }
        moved += (size_t)got;
        transport->received += (uint64_t)got;
        refusal = ln_net_stream_received(stream, (size_t)got);
        if (refusal != LN_NET_FINE) {
            ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "the received bytes violate the sync protocol (refusal %d)",
                         (int)refusal);
            ln_sync_at(error, transport->peer);
            ln_sync_hint(error, "docs/protocol.md lists the refusals; do both sides run the same release of linnet?");
            return LN_NET_BROKEN;
        }
        if (transport->medium->level && (size_t)got < size) {
            if (transport->medium->expect) transport->medium->expect(transport, ln_net_stream_expects(stream));
            return LN_NET_BLOCKED;
        }
    }
    return LN_NET_FLOWS;
}

ln_net_flow ln_net_transport_discard(ln_net_transport *transport, size_t bound) {
    char rest[4096];
    linnet_error error;
    for (size_t moved = 0; moved < bound;) {
        const long got = transport->medium->read(transport, rest, sizeof rest, &error);
        transport->read_blocked = got == LN_NET_WOULD_BLOCK;
        if (got <= 0) return outcome(got);
        moved += (size_t)got;
    }
    return LN_NET_FLOWS;
}

ln_net_flow ln_net_transport_send(ln_net_transport *transport, ln_net_stream *stream, size_t bound,
                                  linnet_error *error) {
    ln_net_flow flow = open_up(transport, error);
    if (flow != LN_NET_FLOWS) return flow;
    for (size_t moved = 0; moved < bound;) {
        ln_net_slice slices[LN_NET_SLICES];
        int count = ln_net_stream_pending(stream, slices, LN_NET_SLICES);
        long put;
        transport->write_blocked = false;
        transport->more = ln_net_stream_more(stream);
        if (!count) return LN_NET_FLOWS;
        put = transport->medium->write(transport, slices, count, error);
        if (put <= 0) {
            transport->write_blocked = put == LN_NET_WOULD_BLOCK;
            return outcome(put);
        }
        moved += (size_t)put;
        transport->sent += (uint64_t)put;
        ln_net_stream_sent(stream, (size_t)put);
    }
    return LN_NET_FLOWS;
}

int ln_net_transport_wants(const ln_net_transport *transport, ln_net_stream *stream) {
    bool level = transport->medium->level;
    int wants = 0;
    void *data;
    size_t size;
    if (transport->stage) return transport->stage_needs;
    ln_net_stream_space(stream, &data, &size);
    if (size) wants |= level || transport->read_blocked ? transport->read_needs : LN_NET_NOW;
    if (!ln_net_stream_idle(stream)) wants |= level || transport->write_blocked ? transport->write_needs : LN_NET_NOW;
    return wants;
}

void ln_net_transport_free(ln_net_transport *transport) {
    if (!transport) return;
    transport->medium->close(transport);
    free(transport);
}

int ln_net_transport_fd(const ln_net_transport *transport) { return transport->fd; }
const char *ln_net_transport_peer(const ln_net_transport *transport) { return transport->peer; }
bool ln_net_transport_open(const ln_net_transport *transport) { return !transport->stage; }

void ln_net_transport_counts(const ln_net_transport *transport, uint64_t *received, uint64_t *sent) {
    *received = transport->received;
    *sent = transport->sent;
}
