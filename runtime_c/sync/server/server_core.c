/* server_core.c - a server's life: creation, the passing of time, the end. server_state.h lists the files that do the
 * rest. */
#include "sync/server/server_core.h"

#include "net/error.h"
#include "sync/codec/compress.h"
#include "sync/server/barrier.h"
#include "sync/server/server_connections.h"
#include "sync/server/server_members.h"
#include "sync/server/server_memory.h"
#include "sync/server/server_peers.h"
#include "sync/server/server_state.h"

#include <stdlib.h>

static void defaults(ln_sync_server_config *c) {
    if (!c->workers) c->workers = 1;
    if (!c->chunk) c->chunk = LN_NET_CHUNK;
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
    if (c->chunk < LN_NET_CHUNK_MIN || c->chunk > LN_NET_CHUNK_MAX) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "chunk size is out of range");
        ln_sync_expected(error, "%d to %d bytes", (int)LN_NET_CHUNK_MIN, (int)LN_NET_CHUNK_MAX);
        return ln_sync_got(error, "%u", (unsigned)c->chunk), LINNET_INVALID_ARGUMENT;
    }
    if (!c->heartbeat || c->heartbeat >= c->lease) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "the lease must be longer than the heartbeat");
        ln_sync_expected(error, "a lease longer than the heartbeat, ideally three times as long");
        return ln_sync_got(error, "a heartbeat of %u ms, a lease of %u ms", (unsigned)c->heartbeat, (unsigned)c->lease),
               LINNET_INVALID_ARGUMENT;
    }
    if (m->push_bytes <= c->max_bytes / at_once) return LINNET_OK;
    ln_sync_fail(error, LINNET_INVALID_ARGUMENT,
                 "linnet_server_config.max_bytes is too small for the gradients of a step");
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
        for (int i = 0; i < 2; i++) free(s->tensors[t].coded[i]);
    }
    ln_sync_empty(s, &s->merged);
    ln_sync_empty(s, &s->means);
    ln_sync_empty(s, &s->record);
    free(s->putters);
    free(s->members);
    free(s->groups);
    free(s->connections);
    free(s->tensors);
    free(s->rows);
    free(s->record_parts);
    free(s);
}

/* ---- time ------------------------------------------------------------------------------------------------------- */

static void earlier(uint64_t *next, uint64_t then) {
    if (then < *next) *next = then;
}

/* Ends everything that has lasted too long: handshakes, connections to silent peers, connections that waited for memory
 * in vain, and the leases of lost members. */
static void scan(ln_sync_server *s, uint64_t now) {
    const uint64_t lease = s->config.lease * LN_SYNC_MS;
    uint64_t next = now + lease;
    for (uint32_t i = 0; i < s->connection_count; i++) {
        sync_connection *c = s->connections[i];
        const uint64_t since = c->state == SERVING ? c->heard : c->opened;
        const uint64_t ends = since + (c->state == SERVING ? lease : LN_SYNC_HANDSHAKE_MS * LN_SYNC_MS);
        if (c->closing) {
            ln_sync_wake(c);
        } else if (c->paused_since) {
            if (now - c->paused_since > lease)
                ln_sync_refuse_peer(c, LN_NET_OVER_LIMIT, 0, "no memory for this push; raise max_bytes of the server");
            else
                earlier(&next, c->paused_since + lease);
        } else if (now >= ends && c->state == SERVING) {
            if (c->member) ln_sync_leave(s, c->member);
            ln_sync_drop_peer(c);
        } else if (now >= ends) {
            ln_sync_refuse_peer(c, LN_NET_TOO_SLOW, 0, "no handshake within %d s", LN_SYNC_HANDSHAKE_MS / 1000);
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

uint64_t ln_sync_server_puts(const ln_sync_server *s) { return s->puts; }

uint64_t ln_sync_server_version(const ln_sync_server *s) { return s->version; }

void ln_sync_server_left_out(ln_sync_server *s, uint64_t bytes) { s->left_out = bytes; }
