/* posix_status.c - asks a server for its state, as an observer: sends HELLO, accepts any tensors, and receives one
 * report. */
#define _POSIX_C_SOURCE 200809L
#include "net/error.h"
#include "net/refusal.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "net/transport.h"
#include "net/transport_connect.h"
#include "net/transport_flow.h"
#include "net/transport_security.h"
#include "sync/codec/digest.h"
#include "sync/codec/messages.h"
#include "sync/codec/payload.h"
#include "sync/common/config.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LIMIT_MS = 10000 };

typedef struct observer {
    ln_net_stream *stream;
    uint32_t announced;
    ln_sync_ready ready;
    uint64_t digest[2];
    uint64_t job;
    uint32_t worker, chunk;
    uint16_t shard;
    char *report;
    uint64_t taken, total;
    bool done;
    linnet_error failure;
} observer;

static void send_control(observer *o, uint8_t type, const void *payload, size_t size) {
    const ln_net_header header = {.type = type, .worker = LN_NET_NO_WORKER, .shard = 0xffff};
    ln_net_stream_control(o->stream, &header, payload, size);
}

static void ask(observer *o) {
    unsigned char payload[LN_SYNC_READY_BYTES];
    for (int i = 0; i < 16; i++) o->ready.manifest[i] = (unsigned char)(o->digest[i / 8] >> 8 * (i % 8));
    ln_sync_ready_write(&o->ready, payload);
    ln_net_stream_open(o->stream, o->job, o->worker, o->shard, o->chunk);
    ln_net_stream_expect(o->stream, ln_sync_sent_by(LN_SYNC_SERVER));
    send_control(o, LN_SYNC_READY, payload, sizeof payload);
    send_control(o, LN_SYNC_STATUS, NULL, 0);
}

static ln_net_refusal welcomed(observer *o, const ln_net_header *header, const void *payload) {
    ln_sync_welcome welcome;
    if (!ln_sync_welcome_read(&welcome, payload, header->length)) return LN_NET_MALFORMED;
    memcpy(o->ready.server_nonce, welcome.server_nonce, sizeof o->ready.server_nonce);
    o->announced = welcome.tensors;
    o->job = header->job;
    o->worker = welcome.worker;
    o->shard = welcome.shard;
    o->chunk = welcome.chunk;
    ln_net_stream_expect(o->stream, LN_NET_BIT(LN_SYNC_TENSORS) | LN_NET_BIT(LN_SYNC_REFUSE));
    return LN_NET_FINE;
}

static ln_net_refusal announced(observer *o, const unsigned char *payload, size_t length) {
    ln_sync_tensor tensor;
    ln_sync_digest(payload, length, o->digest);
    for (size_t at = 0, n; at < length; at += n, o->announced--) {
        n = ln_sync_tensor_read(&tensor, payload + at, length - at);
        if (!n || !o->announced) return LN_NET_MALFORMED;
    }
    if (o->announced == 0) ask(o);
    return LN_NET_FINE;
}

static ln_net_refusal frame(void *context, ln_net_stream *stream, const ln_net_header *header, const void *payload) {
    observer *o = context;
    ln_net_refuse refuse;
    (void)stream;
    switch (header->type) {
    case LN_SYNC_WELCOME: return welcomed(o, header, payload);
    case LN_SYNC_TENSORS: return announced(o, payload, header->length);
    case LN_SYNC_REFUSE:
        if (!ln_net_refuse_read(&refuse, payload, header->length)) return LN_NET_MALFORMED;
        ln_sync_fail(&o->failure, refuse.why == LN_NET_NOT_AUTHENTICATED ? LINNET_NOT_AUTHENTICATED : LINNET_REFUSED,
                     "the server refuses: %s%s%.100s", ln_net_refusal_name(refuse.why), refuse.text[0] ? ": " : "",
                     refuse.text);
        return LN_NET_FINE;
    case LN_SYNC_REPORT:
        o->taken += header->length;
        o->done = o->taken == o->total;
        return LN_NET_FINE;
    default: return LN_NET_FINE; /* heartbeats */
    }
}

static ln_net_refusal place(void *context, ln_net_stream *stream, const ln_net_header *header, void **destination) {
    observer *o = context;
    (void)stream;
    if (header->type != LN_SYNC_REPORT || header->offset != o->taken || o->done) return LN_NET_UNEXPECTED;
    if (header->total > LN_SYNC_REPORT_MAX) return LN_NET_OVER_LIMIT;
    if (!o->report) {
        o->total = header->total;
        o->report = malloc((size_t)o->total + 1);
    }
    if (!o->report || header->total != o->total) return LN_NET_OVER_LIMIT;
    *destination = o->report + header->offset;
    return LN_NET_FINE;
}

static void released(void *context, ln_net_stream *stream, uint64_t tag) { (void)context, (void)stream, (void)tag; }

static void greet(observer *o, const linnet_link_config *link) {
    ln_sync_hello hello = {.lowest = LN_NET_VERSION,
                           .highest = LN_NET_VERSION,
                           .role = LN_SYNC_OBSERVER,
                           .encodings = 1,
                           .last_step = LN_SYNC_NONE,
                           .worker = LN_NET_NO_WORKER,
                           .chunk = (uint32_t)link->chunk,
                           .name = "status"};
    unsigned char payload[LN_SYNC_HELLO_BYTES];
    ln_sync_hello_write(&hello, payload);
    ln_net_stream_expect(o->stream, LN_NET_BIT(LN_SYNC_WELCOME) | LN_NET_BIT(LN_SYNC_REFUSE));
    send_control(o, LN_SYNC_HELLO, payload, sizeof payload);
}

static int64_t now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static linnet_status converse(observer *o, ln_net_transport *transport, const char *address, linnet_error *error) {
    const int64_t until = now_ms() + LIMIT_MS;
    while (!o->done && !o->failure.code) {
        const ln_net_flow sent = ln_net_transport_send(transport, o->stream, LN_NET_TURN, error);
        const ln_net_flow came = ln_net_transport_receive(transport, o->stream, LN_NET_TURN, error);
        if (o->done || o->failure.code) break;
        if (sent == LN_NET_BROKEN || came == LN_NET_BROKEN) return (linnet_status)error->code;
        if (came == LN_NET_ENDED || sent == LN_NET_ENDED) {
            ln_sync_fail(error, LINNET_CONNECTION_LOST, "the server closed the connection before it sent a report");
            return ln_sync_at(error, address);
        }
        const int wants = ln_net_transport_wants(transport, o->stream);
        struct pollfd fd = {.fd = ln_net_transport_fd(transport),
                            .events =
                                (short)((wants & LN_NET_READ ? POLLIN : 0) | (wants & LN_NET_WRITE ? POLLOUT : 0))};
        const int64_t left = until - now_ms();
        if (left <= 0) {
            ln_sync_fail(error, LINNET_TIMED_OUT, "the server sent no report within %d s", LIMIT_MS / 1000);
            ln_sync_at(error, address);
            return ln_sync_hint(error, "is this the address of a linnet server, and do both sides have the same key?");
        }
        poll(&fd, 1, wants & LN_NET_NOW ? 0 : (int)left);
    }
    if (!o->failure.code) return LINNET_OK;
    *error = o->failure;
    return ln_sync_at(error, address);
}

linnet_status linnet_sync_status(const char *address, const linnet_link_config *given, char *text, size_t size,
                                 size_t *needed, linnet_error *error) {
    LN_SYNC_WANT_ERROR(error);
    linnet_link_config link;
    observer o = {0};
    const ln_net_handler handler = {.context = &o, .place = place, .frame = frame, .released = released};
    ln_net_transport *transport = NULL;
    ln_net_security *security = NULL;
    linnet_status status;
    if (!address || (size && !text)) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "an argument is NULL");
        return ln_sync_at(error, address ? "text" : "address");
    }
    status = ln_sync_take_link(given, &link, error);
    if (!status) status = ln_sync_secure(&link, &security, error);
    if (!status) status = ln_net_connect(address, security, link.insecure != 0, &transport, error);
    void *memory = status ? NULL : malloc(ln_net_stream_bytes(1));
    if (!status && !memory) status = ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a connection");
    if (!status) {
        o.stream = ln_net_stream_init(memory, 1, &ln_sync_protocol, &handler);
        greet(&o, &link);
        status = converse(&o, transport, address, error);
    }
    if (!status) {
        o.report[o.total] = 0;
        if (size) snprintf(text, size, "%s", o.report);
        if (needed) *needed = strlen(o.report);
    }
    ln_net_transport_free(transport);
    ln_net_security_free(security);
    free(memory);
    free(o.report);
    return status;
}
