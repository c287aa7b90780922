/* server_connections.c - a server's connections: what each received frame means, and what is due to be sent.
 * server_join.c, server_push.c, server_put.c and server_pull.c handle the frames of their subjects. */
#include "sync/server/server_connections.h"

#include "net/stream.h"
#include "sync/codec/compress.h"
#include "sync/codec/messages.h"
#include "sync/server/barrier.h"
#include "sync/server/record.h"
#include "sync/server/server_join.h"
#include "sync/server/server_members.h"
#include "sync/server/server_memory.h"
#include "sync/server/server_peers.h"
#include "sync/server/server_pull.h"
#include "sync/server/server_push.h"
#include "sync/server/server_put.h"
#include "sync/server/server_state.h"
#include "sync/server/server_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 8 }; /* messages that a stream can queue */

/* ---- received frames ----------------------------------------------------------------------------------------- */

static ln_net_refusal take_heartbeat(sync_connection *c, const ln_net_header *header, const void *payload) {
    if (!ln_sync_heartbeat_read(&c->beat, payload, header->length)) return LN_NET_MALFORMED;
    c->beat.received = c->server->host.clock(c->server->host.context);
    c->beat_due = true;
    ln_sync_wake(c);
    return LN_NET_FINE;
}

static ln_net_refusal take_status(sync_connection *c, const ln_net_header *header, const void *payload) {
    const size_t size = ln_sync_server_status(c->server, NULL, 0);
    char *text;
    (void)header, (void)payload;
    if (c->replies) return LN_NET_FINE; /* one reply at a time, so that a flood of questions gets one answer */
    if (size > LN_SYNC_REPORT_MAX || !ln_sync_fits(c->server, size + 1) || !(text = malloc(size + 1)))
        return LN_NET_OVER_LIMIT;
    ln_sync_server_status(c->server, text, size + 1);
    return ln_sync_reply(c, LN_SYNC_REPORT, LN_SYNC_PLAIN, 0, text, size) ? LN_NET_FINE : LN_NET_OVER_LIMIT;
}

static ln_net_refusal take_snapshot(sync_connection *c, const ln_net_header *header, const void *payload) {
    linnet_error error;
    (void)header, (void)payload;
    memset(&c->saved, 0, sizeof c->saved);
    /* Does not save the same state twice. All workers may ask for a snapshot at the end of a job, and a hostile worker
     * may ask again and again. */
    if (c->server->saved_sequence != c->server->sequence)
        c->saved.status = (uint32_t)ln_sync_server_save(c->server, &error);
    if (c->saved.status)
        linnet_error_format(&error, c->saved.text, sizeof c->saved.text);
    else
        snprintf(c->saved.text, sizeof c->saved.text, "version %llu", (unsigned long long)c->server->saved_version);
    c->saved_due = true;
    ln_sync_wake(c);
    return LN_NET_FINE;
}

static ln_net_refusal take_bye(sync_connection *c, const ln_net_header *header, const void *payload) {
    (void)header, (void)payload;
    if (c->member) {
        c->member->parted = true;
        ln_sync_leave(c->server, c->member);
    }
    c->closing = true;
    ln_sync_wake(c);
    return LN_NET_FINE;
}

static ln_net_refusal take_refuse(sync_connection *c, const ln_net_header *header, const void *payload) {
    (void)header, (void)payload;
    c->closing = true;
    ln_sync_wake(c);
    return LN_NET_FINE;
}

/* What the server does with each message that clients send. `take` gets each complete frame. `place` gets the header of
 * a chunk before the chunk is received, and chooses where its bytes are written. They return what `frame` and `place`
 * of net/handler.h return. The stream has already checked that the client may send the message now. */
static const struct {
    ln_net_refusal (*take)(sync_connection *c, const ln_net_header *header, const void *payload);
    ln_net_refusal (*place)(sync_connection *c, const ln_net_header *header, void **destination);
} messages[LN_SYNC_TYPES] = {
    [LN_SYNC_HELLO] = {.take = ln_sync_take_hello},
    [LN_SYNC_READY] = {.take = ln_sync_take_ready},
    [LN_SYNC_PULL] = {.take = ln_sync_take_pull},
    [LN_SYNC_ROWS] = {.take = ln_sync_take_rows, .place = ln_sync_place_rows},
    [LN_SYNC_IDS] = {.take = ln_sync_take_ids, .place = ln_sync_place_ids},
    [LN_SYNC_PUSH] = {.take = ln_sync_take_push, .place = ln_sync_place_push},
    [LN_SYNC_COMMIT] = {.take = ln_sync_take_commit},
    [LN_SYNC_PUT] = {.take = ln_sync_take_put, .place = ln_sync_place_put},
    [LN_SYNC_HEARTBEAT] = {.take = take_heartbeat},
    [LN_SYNC_STATUS] = {.take = take_status},
    [LN_SYNC_SNAPSHOT] = {.take = take_snapshot},
    [LN_SYNC_BYE] = {.take = take_bye},
    [LN_SYNC_REFUSE] = {.take = take_refuse},
};

static ln_net_refusal place(void *context, ln_net_stream *stream, const ln_net_header *header, void **destination) {
    (void)context;
    if (messages[header->type].place == NULL) return LN_NET_UNEXPECTED;
    return messages[header->type].place(ln_net_stream_user(stream), header, destination);
}

static ln_net_refusal frame(void *context, ln_net_stream *stream, const ln_net_header *header, const void *payload) {
    (void)context;
    if (messages[header->type].take == NULL) return LN_NET_UNEXPECTED;
    return messages[header->type].take(ln_net_stream_user(stream), header, payload);
}

static void released(void *context, ln_net_stream *stream, uint64_t tag) {
    (void)context;
    (void)stream;
    ln_sync_released((sync_send *)(uintptr_t)tag);
}

/* ---- connections --------------------------------------------------------------------------------------------- */

ln_net_stream *ln_sync_server_connect(ln_sync_server *s, const char *peer, uint64_t now) {
    const ln_net_handler handler = {NULL, place, frame, released};
    const size_t head = (sizeof(sync_connection) + 63) / 64 * 64;
    sync_connection *c;
    s->now = now;
    if (s->failed || s->connection_count >= s->config.max_streams) return NULL;
    c = calloc(1, head + ln_net_stream_bytes(PLACES));
    if (!c) return NULL;
    c->server = s;
    c->stream = ln_net_stream_init((char *)c + head, PLACES, &ln_sync_protocol, &handler);
    c->replies_end = &c->replies;
    c->opened = c->heard = now;
    c->slot = s->connection_count;
    snprintf(c->peer, sizeof c->peer, "%s", peer ? peer : "");
    ln_net_stream_set_user(c->stream, c);
    ln_net_stream_expect(c->stream, LN_NET_BIT(LN_SYNC_HELLO) | LN_NET_BIT(LN_SYNC_REFUSE));
    s->connections[s->connection_count++] = c;
    if (s->next_scan > now + LN_SYNC_HANDSHAKE_MS * LN_SYNC_MS) s->next_scan = now + LN_SYNC_HANDSHAKE_MS * LN_SYNC_MS;
    return c->stream;
}

void ln_sync_server_set_owner(ln_net_stream *stream, void *owner) {
    sync_connection *c = ln_net_stream_user(stream);
    c->owner = owner;
}

void *ln_sync_server_owner(const ln_net_stream *stream) {
    const sync_connection *c = ln_net_stream_user(stream);
    return c->owner;
}

void ln_sync_server_disconnect(ln_sync_server *s, ln_net_stream *stream, uint64_t now) {
    sync_connection *c = ln_net_stream_user(stream);
    sync_member *member = c->member;
    s->now = now;
    ln_sync_unwake(c);
    if (ln_net_stream_failure(stream) && !c->closing) s->refused++;
    if (c->paused_since) s->paused--;
    if (s->token == c) s->token = NULL;
    c->state = CLOSED;
    ln_net_stream_reset(c->stream); /* releases the queued messages */
    ln_sync_free_pulls(c);
    ln_sync_empty(s, &c->put.value);
    if (member && member->connection == c) {
        member->connection = NULL;
        if (!member->committed) ln_sync_discard(s, member, true);
        member->lease_ends = now + s->config.lease * LN_SYNC_MS;
        if (s->next_scan > member->lease_ends) s->next_scan = member->lease_ends;
    }
    s->lost_received += c->received;
    s->lost_sent += c->sent;
    s->connections[c->slot] = s->connections[--s->connection_count];
    s->connections[c->slot]->slot = c->slot;
    free(c);
    ln_sync_resume_peers(s);
}

void ln_sync_server_heard(ln_sync_server *s, ln_net_stream *stream, uint64_t now) {
    sync_connection *c = ln_net_stream_user(stream);
    s->now = c->heard = now;
    if (c->member) c->member->heard = now;
}

void ln_sync_server_counted(ln_sync_server *s, ln_net_stream *stream, uint64_t received, uint64_t sent) {
    sync_connection *c = ln_net_stream_user(stream);
    (void)s;
    if (c->member) {
        c->member->received += received - c->received;
        c->member->sent += sent - c->sent;
    }
    c->received = received;
    c->sent = sent;
}

void ln_sync_server_fill(ln_sync_server *s, ln_net_stream *stream) {
    sync_connection *c = ln_net_stream_user(stream);
    (void)s;
    if (c->state == ANNOUNCE) ln_sync_announce(c);
    if (c->state != SERVING || c->closing) return;
    if (c->ack_due) ln_sync_send_ack(c);
    if (c->beat_due) {
        const uint64_t clock = s->host.clock(s->host.context);
        const ln_sync_heartbeat beat = {clock, c->beat.clock, c->beat.received};
        unsigned char bytes[LN_SYNC_HEARTBEAT_BYTES];
        ln_sync_heartbeat_write(&beat, bytes);
        c->beat_due = !ln_sync_tell(c, LN_SYNC_HEARTBEAT, 0, bytes, sizeof bytes);
    }
    if (c->stored_due) {
        unsigned char bytes[LN_SYNC_STORED_BYTES];
        ln_sync_stored_write(&c->stored, bytes);
        c->stored_due = !ln_sync_tell(c, LN_SYNC_STORED, c->stored_number, bytes, sizeof bytes);
    }
    if (c->saved_due) {
        unsigned char bytes[LN_SYNC_SAVED_BYTES + LN_SYNC_SAVED_TEXT];
        c->saved_due = !ln_sync_tell(c, LN_SYNC_SAVED, s->saved_version, bytes, ln_sync_saved_write(&c->saved, bytes));
    }
    if (!c->ack_due) ln_sync_answer_pulls(c); /* the ACK is sent before values of its version */
}

bool ln_sync_server_closing(const ln_sync_server *s, const ln_net_stream *stream) {
    const sync_connection *c = ln_net_stream_user(stream);
    (void)s;
    return c->closing || ln_net_stream_failure(stream);
}

bool ln_sync_server_resumed(ln_sync_server *s, ln_net_stream *stream) {
    sync_connection *c = ln_net_stream_user(stream);
    const bool resumed = c->resumed;
    (void)s;
    c->resumed = false;
    return resumed;
}
