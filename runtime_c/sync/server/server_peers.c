/* server_peers.c - what any part of a server does to a connection: wakes it, lets it wait for memory, tells or refuses
 * its peer. A server that fails refuses all of them. */
#include "sync/server/server_peers.h"

#include "net/bytes.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "sync/server/server_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint64_t ln_sync_job_number(const ln_sync_server *s) { return get64(s->manifest->job); }

/* ---- connections with something to do ------------------------------------------------------------------------ */

void ln_sync_wake(sync_connection *c) {
    if (c->woken || c->state == CLOSED) return;
    c->woken = true;
    c->wake_next = NULL;
    *c->server->wake_end = c;
    c->server->wake_end = &c->wake_next;
}

void ln_sync_unwake(sync_connection *c) {
    ln_sync_server *s = c->server;
    sync_connection **at = &s->wake_first;
    if (!c->woken) return;
    while (*at != c) at = &(*at)->wake_next;
    *at = c->wake_next;
    if (s->wake_end == &c->wake_next) s->wake_end = at;
}

ln_net_stream *ln_sync_server_woken(ln_sync_server *s) {
    sync_connection *c = s->wake_first;
    if (!c) return NULL;
    s->wake_first = c->wake_next;
    if (!s->wake_first) s->wake_end = &s->wake_first;
    c->woken = false;
    return c->stream;
}

void ln_sync_pause_peer(sync_connection *c) {
    c->paused_since = c->server->now ? c->server->now : 1;
    c->server->paused++;
    ln_net_stream_pause(c->stream, true);
}

void ln_sync_resume_peers(ln_sync_server *s) {
    if (!s->paused || s->used >= s->config.max_bytes) return;
    for (uint32_t i = 0; i < s->connection_count; i++) {
        sync_connection *c = s->connections[i];
        if (!c->paused_since) continue;
        c->paused_since = 0;
        c->resumed = true;
        s->paused--;
        ln_net_stream_pause(c->stream, false);
        ln_sync_wake(c);
    }
}

/* ---- messages to a peer -------------------------------------------------------------------------------------- */

bool ln_sync_tell(sync_connection *c, uint8_t type, uint64_t step, const void *payload, size_t size) {
    ln_net_header header;
    memset(&header, 0, sizeof header);
    header.type = type;
    header.step = step;
    header.job = ln_sync_job_number(c->server);
    header.worker = c->claim;
    header.shard = c->server->manifest->shard;
    return ln_net_stream_control(c->stream, &header, payload, size);
}

void ln_sync_refuse_peer(sync_connection *c, ln_net_refusal why, uint32_t detail, const char *format, ...) {
    char text[LN_NET_REFUSE_TEXT + 1];
    va_list arguments;
    if (c->closing) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    c->closing = true;
    c->server->refused++;
    ln_net_stream_refuse(c->stream, why, detail, text);
    ln_sync_wake(c);
}

void ln_sync_drop_peer(sync_connection *c) {
    c->closing = true;
    ln_net_stream_reset(c->stream);
    ln_net_stream_expect(c->stream, 0);
    ln_sync_wake(c);
}

/* ---- the end of a server ------------------------------------------------------------------------------------- */

linnet_status ln_sync_server_failure(const ln_sync_server *s, linnet_error *error) {
    if (s->failed && error) *error = s->failure;
    return s->failed;
}

void ln_sync_server_shut(ln_sync_server *s, bool over) {
    const ln_net_refusal why = s->failed == LINNET_SUPERSEDED ? LN_NET_SUPERSEDED
                               : over                         ? LN_NET_OVER
                                                              : LN_NET_SHUTTING_DOWN;
    for (uint32_t i = 0; i < s->connection_count; i++)
        ln_sync_refuse_peer(s->connections[i], why, 0, "%s",
                            s->failed ? s->failure.what
                            : over    ? "the job has ended"
                                      : "the server is shutting down");
}

void ln_sync_fail_server(ln_sync_server *s, const linnet_error *error) {
    if (s->failed) return;
    s->failed = (linnet_status)error->code;
    s->failure = *error;
    ln_sync_server_shut(s, false);
}
