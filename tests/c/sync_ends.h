/* sync_ends.h - both ends of a connection in one program: a listener, two transports, a stream at each, and a pump.
 * Counts and sums what arrives, so that a test notices lost, duplicated or changed bytes. */
#ifndef SYNC_ENDS_H
#define SYNC_ENDS_H

#include "check.h"

#include "net/stream.h"
#include "net/transport.h"
#include "net/transport_connect.h"
#include "net/transport_flow.h"
#include "net/transport_listen.h"
#include "sync/codec/messages.h"
#include "sync/codec/payload.h"

#include <poll.h>
#include <stdlib.h>

enum { ENDS_PLACES = 8 };

typedef struct end {
    ln_net_transport *transport;
    ln_net_stream *stream;
    void *memory;
    unsigned char *inbox; /* messages are written here, at their offsets */
    size_t inbox_size;
    uint64_t messages, controls, released;
    ln_net_flow flow; /* result of the last call */
    linnet_error error;
} end;

static ln_net_refusal end_place(void *context, ln_net_stream *stream, const ln_net_header *header, void **at) {
    end *self = context;
    (void)stream;
    if (header->total > self->inbox_size) return LN_NET_WRONG_LENGTH;
    *at = self->inbox + header->offset;
    return LN_NET_FINE;
}

static ln_net_refusal end_frame(void *context, ln_net_stream *stream, const ln_net_header *header, const void *data) {
    end *self = context;
    (void)stream;
    (void)data;
    if (!ln_sync_is_bulk(header->type))
        self->controls++;
    else if (header->offset + header->length == header->total)
        self->messages++;
    return LN_NET_FINE;
}

static void end_released(void *context, ln_net_stream *stream, uint64_t tag) {
    (void)stream;
    (void)tag;
    ((end *)context)->released++;
}

static void end_init(end *self, size_t inbox, uint32_t chunk) {
    ln_net_handler handler = {self, end_place, end_frame, end_released};
    memset(self, 0, sizeof *self);
    self->memory = malloc(ln_net_stream_bytes(ENDS_PLACES));
    self->stream = ln_net_stream_init(self->memory, ENDS_PLACES, &ln_sync_protocol, &handler);
    ln_net_stream_open(self->stream, 1, 2, 3, chunk);
    self->inbox = calloc(1, inbox ? inbox : 1);
    self->inbox_size = inbox;
}

static void end_free(end *self) {
    ln_net_transport_free(self->transport);
    free(self->memory);
    free(self->inbox);
    memset(self, 0, sizeof *self);
}

static bool end_gone(const end *self) { return self->flow == LN_NET_ENDED || self->flow == LN_NET_BROKEN; }

/* Does one turn of one end, as an owner does when the fd is ready. */
static void end_turn(end *self, size_t bound) {
    if (end_gone(self)) return;
    self->flow = ln_net_transport_receive(self->transport, self->stream, bound, &self->error);
    if (end_gone(self)) return;
    self->flow = ln_net_transport_send(self->transport, self->stream, bound, &self->error);
}

/* Polls all ends and gives the ready ones their turn. Returns false if none was ready within the time. */
static inline bool ends_step(end *ends, int count, size_t bound, int milliseconds) {
    struct pollfd fds[8];
    bool any = false, now = false;
    for (int i = 0; i < count; i++) {
        int wants = end_gone(&ends[i]) ? 0 : ln_net_transport_wants(ends[i].transport, ends[i].stream);
        fds[i].fd = end_gone(&ends[i]) ? -1 : ln_net_transport_fd(ends[i].transport);
        fds[i].events = (short)((wants & LN_NET_READ ? POLLIN : 0) | (wants & LN_NET_WRITE ? POLLOUT : 0));
        fds[i].revents = 0;
        now |= (wants & LN_NET_NOW) != 0;
        any |= (wants & LN_NET_NOW) != 0;
        if (wants & LN_NET_NOW) fds[i].revents = POLLIN;
    }
    {
        short had[8];
        for (int i = 0; i < count; i++) had[i] = fds[i].revents;
        any |= poll(fds, (nfds_t)count, now ? 0 : milliseconds) > 0;
        for (int i = 0; i < count; i++)
            if (fds[i].revents | had[i]) end_turn(&ends[i], bound);
    }
    return any;
}

/* Creates a listener at `address` (port 0, or a path) and connects both ends to it. Returns 0 on success. */
static inline linnet_status ends_connect(end ends[2], const char *address, const ln_net_security *server,
                                         const ln_net_security *client, linnet_error *error) {
    ln_net_listener *listener;
    struct pollfd ready;
    linnet_status status = ln_net_listen(address, server, false, &listener, error);
    if (status) return status;
    status = ln_net_connect(ln_net_listener_address(listener), client, false, &ends[0].transport, error);
    ready = (struct pollfd){ln_net_listener_fd(listener), POLLIN, 0};
    if (!status) poll(&ready, 1, 5000);
    if (!status) status = ln_net_accept(listener, &ends[1].transport, error);
    if (!status && !ends[1].transport) status = LINNET_TIMED_OUT;
    ln_net_listener_free(listener);
    return status;
}

#endif
