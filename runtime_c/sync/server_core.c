/* server_core.c - a server's life: creation, connections, time, shutdown. server_join.c, server_push.c and
 * server_pull.c handle frames, barrier.c decides when a step closes, server_step.c makes the update. */
#include "sync/compress.h"
#include "sync/error.h"
#include "sync/server_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 8, HANDSHAKE_MS = 10000 };
#define MS UINT64_C(1000000)

static ln_sync_refusal place(void *context, ln_sync_stream *stream, const ln_sync_header *header, void **destination) {
    sync_connection *c = ln_sync_stream_user(stream);
    (void)context;
    if (header->type == LN_SYNC_ROWS) return ln_sync_place_rows(c, header, destination);
    return ln_sync_place_push(c, header, destination);
}

static ln_sync_refusal take_beat(sync_connection *c, const ln_sync_header *header, const void *payload) {
    if (!ln_sync_beat_read(&c->beat, payload, header->length)) return LN_SYNC_MALFORMED;
    c->beat.received = c->server->host.clock(c->server->host.context);
    c->beat_due = true;
    ln_sync_wake(c);
    return LN_SYNC_FINE;
}

static ln_sync_refusal take_status(sync_connection *c) {
    const size_t size = ln_sync_server_status(c->server, NULL, 0);
    char *text;
    if (c->replies) return LN_SYNC_FINE; /* one reply at a time, so that a flood of questions gets one answer */
    if (size > LN_SYNC_REPORT_MAX || !ln_sync_fits(c->server, size + 1) || !(text = malloc(size + 1)))
        return LN_SYNC_OVER_LIMIT;
    ln_sync_server_status(c->server, text, size + 1);
    return ln_sync_reply(c, LN_SYNC_REPORT, 0, text, size) ? LN_SYNC_FINE : LN_SYNC_OVER_LIMIT;
}

static ln_sync_refusal take_snapshot(sync_connection *c) {
    linnet_error error;
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
    return LN_SYNC_FINE;
}

static ln_sync_refusal frame(void *context, ln_sync_stream *stream, const ln_sync_header *header, const void *payload) {
    sync_connection *c = ln_sync_stream_user(stream);
    (void)context;
    switch (header->type) {
    case LN_SYNC_HELLO: return ln_sync_take_hello(c, header, payload);
    case LN_SYNC_READY: return ln_sync_take_ready(c, header, payload);
    case LN_SYNC_PULL: return ln_sync_take_pull(c, header, payload);
    case LN_SYNC_ROWS: return ln_sync_take_rows(c, header, payload);
    case LN_SYNC_PUSH:
    case LN_SYNC_IDS: return ln_sync_take_push(c, header, payload);
    case LN_SYNC_COMMIT: return ln_sync_take_commit(c, header, payload);
    case LN_SYNC_HEARTBEAT: return take_beat(c, header, payload);
    case LN_SYNC_SNAPSHOT: return take_snapshot(c);
    case LN_SYNC_STATUS: return take_status(c);
    case LN_SYNC_BYE:
        if (c->member) {
            c->member->parted = true;
            ln_sync_leave(c->server, c->member);
        }
        c->closing = true;
        ln_sync_wake(c);
        return LN_SYNC_FINE;
    case LN_SYNC_REFUSE:
        c->closing = true;
        ln_sync_wake(c);
        return LN_SYNC_FINE;
    default: return LN_SYNC_UNEXPECTED;
    }
}

static void released(void *context, ln_sync_stream *stream, uint64_t tag) {
    (void)context;
    (void)stream;
    ln_sync_released((sync_send *)(uintptr_t)tag);
}

static void defaults(ln_sync_server_config *c) {
    if (!c->workers) c->workers = 1;
    if (!c->chunk) c->chunk = LN_SYNC_CHUNK;
    if (!c->heartbeat) c->heartbeat = c->lease ? c->lease / 3 : 5000;
    if (!c->lease) c->lease = 3 * c->heartbeat;
    if (!c->max_streams) c->max_streams = 4096;
    if (!c->max_bytes) c->max_bytes = UINT64_C(1) << 30;
    c->encodings |= 1u << LN_SYNC_PLAIN;
}

static linnet_status check(const ln_sync_manifest *m, const ln_sync_server_config *c, linnet_error *error) {
    const uint64_t at_once = c->quorum && !c->asynchronous ? c->workers : 1;
    if (c->quorum > c->workers) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "the quorum is larger than the number of workers");
        ln_sync_expected(error, "quorum <= workers = %u", (unsigned)c->workers);
        return ln_sync_got(error, "quorum = %u", (unsigned)c->quorum), LINNET_INVALID_ARGUMENT;
    }
    if (c->chunk < LN_SYNC_CHUNK_MIN || c->chunk > LN_SYNC_CHUNK_MAX) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "chunk size is out of range");
        ln_sync_expected(error, "%d to %d bytes", (int)LN_SYNC_CHUNK_MIN, (int)LN_SYNC_CHUNK_MAX);
        return ln_sync_got(error, "%u", (unsigned)c->chunk), LINNET_INVALID_ARGUMENT;
    }
    if (!c->heartbeat || c->heartbeat >= c->lease) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "the lease must be longer than the heartbeat");
        ln_sync_expected(error, "a lease longer than the heartbeat, best three times as long");
        return ln_sync_got(error, "a heartbeat of %u ms, a lease of %u ms", (unsigned)c->heartbeat, (unsigned)c->lease),
               LINNET_INVALID_ARGUMENT;
    }
    if (m->push_bytes <= c->max_bytes / at_once) return LINNET_OK;
    ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "max_bytes is too small for the gradients of a step");
    ln_sync_expected(error, "at least %llu bytes for each of %llu workers", (unsigned long long)m->push_bytes,
                     (unsigned long long)at_once);
    return ln_sync_got(error, "%llu bytes", (unsigned long long)c->max_bytes), LINNET_INVALID_ARGUMENT;
}

linnet_status ln_sync_server_new(const ln_sync_manifest *manifest, const ln_sync_server_config *config,
                                 const ln_sync_apply *apply, const ln_sync_storage *storage, const ln_sync_host *host,
                                 ln_sync_server **out, linnet_error *error) {
    ln_sync_server_config made = *config;
    ln_sync_server *s;
    linnet_status status;
    *out = NULL;
    defaults(&made);
    if ((status = check(manifest, &made, error)) != LINNET_OK) return status;
    s = calloc(1, sizeof *s);
    if (!s) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a server");
    s->manifest = manifest;
    s->config = made;
    s->apply = *apply;
    if (storage) s->storage = *storage;
    s->host = *host;
    s->saved_sequence = LN_SYNC_NONE;
    s->began = s->saved_at = s->now = host->clock(host->context);
    s->wake_end = &s->wake_first;
    for (uint32_t t = 0; t < manifest->count; t++)
        s->large = s->large || manifest->variables[t].entry.dtype == LINNET_F16;
    s->tensors = calloc(manifest->count + 1, sizeof *s->tensors);
    s->rows = calloc(manifest->count + 1, sizeof *s->rows);
    s->record_parts = calloc(3 * (size_t)manifest->count + 1, sizeof *s->record_parts);
    s->connections = calloc(made.max_streams, sizeof(void *));
    if (!s->tensors || !s->rows || !s->record_parts || !s->connections) {
        ln_sync_server_release(s);
        return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a server of %u tensors and %u connections",
                            (unsigned)manifest->count, (unsigned)made.max_streams);
    }
    *out = s;
    return LINNET_OK;
}

void ln_sync_server_release(ln_sync_server *s) {
    if (!s) return;
    while (s->connection_count) ln_sync_server_disconnect(s, s->connections[s->connection_count - 1]->stream, s->now);
    for (uint32_t i = 0; i < s->member_count; i++) ln_sync_free_member(s, s->members[i]);
    for (uint32_t i = 0; i < s->group_count; i++) ln_sync_free_group(s, s->groups[i]);
    for (sync_send *send = s->free_sends, *next; send; send = next) {
        next = send->next;
        free(send);
    }
    for (uint32_t t = 0; s->tensors && t < s->manifest->count; t++) {
        ln_sync_empty(s, &s->tensors[t].ids);
        ln_sync_empty(s, &s->tensors[t].rows);
        free(s->tensors[t].sums);
    }
    ln_sync_empty(s, &s->merged);
    ln_sync_empty(s, &s->means);
    ln_sync_empty(s, &s->record);
    free(s->members);
    free(s->groups);
    free(s->connections);
    free(s->tensors);
    free(s->rows);
    free(s->record_parts);
    free(s);
}

/* ---- connections ------------------------------------------------------------------------------------------------ */

ln_sync_stream *ln_sync_server_connect(ln_sync_server *s, const char *peer, uint64_t now) {
    const ln_sync_handler handler = {NULL, place, frame, released};
    const size_t head = (sizeof(sync_connection) + 63) / 64 * 64;
    sync_connection *c;
    s->now = now;
    if (s->failed || s->connection_count >= s->config.max_streams) return NULL;
    c = calloc(1, head + ln_sync_stream_bytes(PLACES));
    if (!c) return NULL;
    c->server = s;
    c->stream = ln_sync_stream_init((char *)c + head, PLACES, &handler);
    c->replies_end = &c->replies;
    c->opened = c->heard = now;
    c->slot = s->connection_count;
    snprintf(c->peer, sizeof c->peer, "%s", peer ? peer : "");
    ln_sync_stream_set_user(c->stream, c);
    ln_sync_stream_expect(c->stream, 1u << LN_SYNC_HELLO | 1u << LN_SYNC_REFUSE);
    s->connections[s->connection_count++] = c;
    if (s->next_scan > now + HANDSHAKE_MS * MS) s->next_scan = now + HANDSHAKE_MS * MS;
    return c->stream;
}

void ln_sync_server_set_owner(ln_sync_stream *stream, void *owner) {
    sync_connection *c = ln_sync_stream_user(stream);
    c->owner = owner;
}

void *ln_sync_server_owner(const ln_sync_stream *stream) {
    const sync_connection *c = ln_sync_stream_user(stream);
    return c->owner;
}

static void unwake(ln_sync_server *s, sync_connection *c) {
    sync_connection **at = &s->wake_first;
    if (!c->woken) return;
    while (*at != c) at = &(*at)->wake_next;
    *at = c->wake_next;
    if (s->wake_end == &c->wake_next) s->wake_end = at;
}

void ln_sync_server_disconnect(ln_sync_server *s, ln_sync_stream *stream, uint64_t now) {
    sync_connection *c = ln_sync_stream_user(stream);
    sync_member *member = c->member;
    s->now = now;
    unwake(s, c);
    if (ln_sync_stream_failure(stream) && !c->closing) s->refused++;
    if (c->paused_since) s->paused--;
    if (s->token == c) s->token = NULL;
    c->state = CLOSED;
    ln_sync_stream_reset(c->stream); /* releases the queued messages */
    ln_sync_free_pulls(c);
    if (member && member->connection == c) {
        member->connection = NULL;
        if (!member->committed) ln_sync_discard(s, member, true);
        member->lease_ends = now + s->config.lease * MS;
        if (s->next_scan > member->lease_ends) s->next_scan = member->lease_ends;
    }
    s->lost_received += c->received;
    s->lost_sent += c->sent;
    s->connections[c->slot] = s->connections[--s->connection_count];
    s->connections[c->slot]->slot = c->slot;
    free(c);
    ln_sync_resume_peers(s);
}

void ln_sync_server_heard(ln_sync_server *s, ln_sync_stream *stream, uint64_t now) {
    sync_connection *c = ln_sync_stream_user(stream);
    s->now = c->heard = now;
    if (c->member) c->member->heard = now;
}

void ln_sync_server_fill(ln_sync_server *s, ln_sync_stream *stream) {
    sync_connection *c = ln_sync_stream_user(stream);
    (void)s;
    if (c->state == ANNOUNCE) ln_sync_announce(c);
    if (c->state != SERVING || c->closing) return;
    if (c->ack_due) ln_sync_send_ack(c);
    if (c->beat_due) {
        const uint64_t clock = s->host.clock(s->host.context);
        const ln_sync_beat beat = {clock, c->beat.clock, c->beat.received};
        unsigned char bytes[LN_SYNC_BEAT_BYTES];
        ln_sync_beat_write(&beat, bytes);
        c->beat_due = !ln_sync_tell(c, LN_SYNC_HEARTBEAT, 0, bytes, sizeof bytes);
    }
    if (c->saved_due) {
        unsigned char bytes[LN_SYNC_SAVED_BYTES + LN_SYNC_SAVED_TEXT];
        c->saved_due = !ln_sync_tell(c, LN_SYNC_SAVED, s->saved_version, bytes, ln_sync_saved_write(&c->saved, bytes));
    }
    if (!c->ack_due) ln_sync_answer_pulls(c); /* the ACK is sent before values of its version */
}

void ln_sync_wake(sync_connection *c) {
    if (c->woken || c->state == CLOSED) return;
    c->woken = true;
    c->wake_next = NULL;
    *c->server->wake_end = c;
    c->server->wake_end = &c->wake_next;
}

ln_sync_stream *ln_sync_server_woken(ln_sync_server *s) {
    sync_connection *c = s->wake_first;
    if (!c) return NULL;
    s->wake_first = c->wake_next;
    if (!s->wake_first) s->wake_end = &s->wake_first;
    c->woken = false;
    return c->stream;
}

bool ln_sync_server_closing(const ln_sync_server *s, const ln_sync_stream *stream) {
    const sync_connection *c = ln_sync_stream_user(stream);
    (void)s;
    return c->closing || ln_sync_stream_failure(stream);
}

bool ln_sync_server_resumed(ln_sync_server *s, ln_sync_stream *stream) {
    sync_connection *c = ln_sync_stream_user(stream);
    const bool resumed = c->resumed;
    (void)s;
    c->resumed = false;
    return resumed;
}

bool ln_sync_tell(sync_connection *c, uint8_t type, uint64_t step, const void *payload, size_t size) {
    ln_sync_header header;
    memset(&header, 0, sizeof header);
    header.type = type;
    header.step = step;
    header.job = ln_sync_job_number(c->server);
    header.worker = c->claim;
    header.shard = c->server->manifest->shard;
    return ln_sync_stream_control(c->stream, &header, payload, size);
}

void ln_sync_refuse_peer(sync_connection *c, ln_sync_refusal why, uint32_t detail, const char *format, ...) {
    char text[LN_SYNC_REFUSE_TEXT + 1];
    va_list arguments;
    if (c->closing) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    c->closing = true;
    c->server->refused++;
    ln_sync_stream_refuse(c->stream, why, detail, text);
    ln_sync_wake(c);
}

void ln_sync_drop_peer(sync_connection *c) {
    c->closing = true;
    ln_sync_stream_reset(c->stream);
    ln_sync_stream_expect(c->stream, 0);
    ln_sync_wake(c);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

bool ln_sync_fits(const ln_sync_server *s, uint64_t bytes) {
    return s->used <= s->config.max_bytes && bytes <= s->config.max_bytes - s->used;
}

bool ln_sync_grow(ln_sync_server *s, sync_buffer *buffer, uint64_t bytes) {
    void *data;
    if (bytes <= buffer->capacity) return true;
    ln_sync_empty(s, buffer);
    data = bytes < SIZE_MAX / 2 ? malloc((size_t)bytes) : NULL;
    if (!data) return false;
    buffer->data = data;
    buffer->capacity = bytes;
    s->used += bytes;
    return true;
}

void ln_sync_empty(ln_sync_server *s, sync_buffer *buffer) {
    free(buffer->data);
    s->used -= buffer->capacity;
    buffer->data = NULL;
    buffer->capacity = 0;
}

void ln_sync_resume_peers(ln_sync_server *s) {
    if (!s->paused || s->used >= s->config.max_bytes) return;
    for (uint32_t i = 0; i < s->connection_count; i++) {
        sync_connection *c = s->connections[i];
        if (!c->paused_since) continue;
        c->paused_since = 0;
        c->resumed = true;
        s->paused--;
        ln_sync_stream_pause(c->stream, false);
        ln_sync_wake(c);
    }
}

/* ---- time ------------------------------------------------------------------------------------------------------- */

static void earlier(uint64_t *next, uint64_t then) {
    if (then < *next) *next = then;
}

/* Ends everything that has lasted too long: handshakes, connections to silent peers, connections that waited for memory
 * in vain, and the leases of lost members. */
static void scan(ln_sync_server *s, uint64_t now) {
    const uint64_t lease = s->config.lease * MS;
    uint64_t next = now + lease;
    for (uint32_t i = 0; i < s->connection_count; i++) {
        sync_connection *c = s->connections[i];
        const uint64_t since = c->state == SERVING ? c->heard : c->opened;
        const uint64_t ends = since + (c->state == SERVING ? lease : HANDSHAKE_MS * MS);
        if (c->closing) {
            ln_sync_wake(c);
        } else if (c->paused_since) {
            if (now - c->paused_since > lease)
                ln_sync_refuse_peer(c, LN_SYNC_OVER_LIMIT, 0, "no memory for this push; raise max_bytes of the server");
            else
                earlier(&next, c->paused_since + lease);
        } else if (now >= ends && c->state == SERVING) {
            if (c->member) ln_sync_leave(s, c->member);
            ln_sync_drop_peer(c);
        } else if (now >= ends) {
            ln_sync_refuse_peer(c, LN_SYNC_TOO_SLOW, 0, "no handshake within %d s", HANDSHAKE_MS / 1000);
        } else {
            earlier(&next, ends);
        }
    }
    for (uint32_t i = 0; i < s->member_count; i++) {
        sync_member *m = s->members[i];
        if (!m->live || m->connection) continue;
        if (now >= m->lease_ends)
            ln_sync_leave(s, m);
        else
            earlier(&next, m->lease_ends);
    }
    s->next_scan = next;
}

uint64_t ln_sync_server_tick(ln_sync_server *s, uint64_t now) {
    s->now = now;
    if (now >= s->next_scan) scan(s, now);
    return s->next_scan;
}

/* ---- state ------------------------------------------------------------------------------------------------------ */

uint64_t ln_sync_server_version(const ln_sync_server *s) { return s->version; }

linnet_status ln_sync_server_failure(const ln_sync_server *s, linnet_error *error) {
    if (s->failed && error) *error = s->failure;
    return s->failed;
}

void ln_sync_server_left_out(ln_sync_server *s, uint64_t bytes) { s->left_out = bytes; }

void ln_sync_fail_server(ln_sync_server *s, const linnet_error *error) {
    if (s->failed) return;
    s->failed = (linnet_status)error->code;
    s->failure = *error;
    ln_sync_server_shut(s, false);
}

void ln_sync_server_shut(ln_sync_server *s, bool over) {
    const ln_sync_refusal why = s->failed == LINNET_SUPERSEDED ? LN_SYNC_SUPERSEDED
                                : over                         ? LN_SYNC_OVER
                                                               : LN_SYNC_SHUTTING_DOWN;
    for (uint32_t i = 0; i < s->connection_count; i++)
        ln_sync_refuse_peer(s->connections[i], why, 0, "%s",
                            s->failed ? s->failure.what
                            : over    ? "the job has ended"
                                      : "the server is shutting down");
}

linnet_status ln_sync_server_save(ln_sync_server *s, linnet_error *error) {
    char *table, where[256] = "";
    linnet_status status;
    if (s->failed) return ln_sync_server_failure(s, error); /* a half-made update is not saved; the journal has it */
    if (!s->storage.save) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "this server has no folder for snapshots");
        return ln_sync_hint(error, "start it with a folder: linnet-serve --folder DIR"), LINNET_INVALID_ARGUMENT;
    }
    table = ln_sync_write_table(s);
    if (!table) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for the table of the snapshot");
    status = s->storage.save(s->storage.context, table, where, sizeof where, error);
    free(table);
    if (status) return status;
    s->saved_version = s->version;
    s->saved_sequence = s->sequence;
    s->saved_at = s->now;
    s->journal_records = 0;
    return LINNET_OK;
}

void ln_sync_server_counted(ln_sync_server *s, ln_sync_stream *stream, uint64_t received, uint64_t sent) {
    sync_connection *c = ln_sync_stream_user(stream);
    (void)s;
    if (c->member) {
        c->member->received += received - c->received;
        c->member->sent += sent - c->sent;
    }
    c->received = received;
    c->sent = sent;
}
