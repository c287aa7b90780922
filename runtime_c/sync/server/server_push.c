/* server_push.c - receives gradients: chooses where their bytes are written, checks them, and handles COMMIT, which
 * makes them count. If the step is closed or the push was already received, the data is read and dropped. */
#include "sync/server/server_push.h"

#include "sync/codec/compress.h"
#include "sync/codec/compress_size.h"
#include "sync/codec/manifest.h"
#include "sync/common/combine.h"
#include "sync/server/barrier.h"
#include "sync/server/server_members.h"
#include "sync/server/server_memory.h"
#include "sync/server/server_peers.h"
#include "sync/server/server_state.h"
#include "sync/server/server_step.h"

#include <math.h>
#include <stdlib.h>

/* Tells whether a push no longer counts: the step is closed, or it was already pushed over a lost connection. */
static bool is_void(const sync_member *m, uint64_t step) { return m->committed || step < m->group->step; }

static uint64_t elements_of(const ln_sync_variable *v, const sync_push *push) {
    return v->entry.kind == LN_SYNC_SPARSE ? push->rows * v->row_elements : v->elements;
}

static ln_net_refusal check_push(const sync_connection *c, const ln_sync_variable *v, const ln_net_header *h) {
    const uint64_t most = h->type == LN_SYNC_IDS ? 8 * v->entry.dims[0] : 2 * v->elements * v->gradient_size + 4096;
    if (!v->gradient || (h->type == LN_SYNC_IDS && v->entry.kind != LN_SYNC_SPARSE)) return LN_NET_UNEXPECTED;
    if (h->step > c->member->group->step) return LN_NET_UNEXPECTED;
    if (h->type == LN_SYNC_IDS && h->encoding) return LN_NET_WRONG_ENCODING;
    if (!(c->hello.encodings >> h->encoding & 1) || (h->encoding && v->gradient == LINNET_F64))
        return LN_NET_WRONG_ENCODING;
    return h->total > most || (h->type == LN_SYNC_IDS && h->total % 8) ? LN_NET_WRONG_LENGTH : LN_NET_FINE;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* The member that the others wait for may exceed max_bytes by the gradients of one step. Otherwise the step might never
 * close, and no memory would become free. */
static bool goes_first(ln_sync_server *s, const sync_connection *c) {
    const sync_group *g = c->member->group;
    if (s->config.asynchronous) return s->token == c || !s->token;
    for (uint32_t i = 0; i < g->count; i++)
        if (g->members[i]->live && !g->members[i]->committed) return g->members[i] == c->member;
    return false;
}

/* Returns true if there is room for `bytes` more. Otherwise pauses the connection, which asks again later. */
static bool make_room(sync_connection *c, uint64_t bytes) {
    ln_sync_server *s = c->server;
    if (ln_sync_fits(s, bytes)) return true;
    ln_sync_trim(s);
    if (!ln_sync_fits(s, bytes)) ln_sync_fold(s, c->member->group);
    if (ln_sync_fits(s, bytes)) return true;
    if (bytes <= s->config.max_bytes && goes_first(s, c)) {
        if (s->config.asynchronous) s->token = c;
        return true;
    }
    ln_sync_pause_peer(c);
    return false;
}

/* ---- where payloads go ------------------------------------------------------------------------------------------ */

static ln_net_refusal place_ids(sync_connection *c, sync_push *p, const ln_net_header *h, void **destination) {
    if (h->offset == 0) {
        if (p->ids_begun || p->begun) return LN_NET_MALFORMED;
        if (h->total > p->ids.capacity && !make_room(c, h->total)) return LN_NET_FINE;
        if (!ln_sync_grow(c->server, &p->ids, h->total)) return LN_NET_OVER_LIMIT;
        p->ids_begun = true;
        p->rows = h->total / 8;
    }
    if (h->offset != p->ids_received || h->total != 8 * p->rows || p->ids_whole) return LN_NET_MALFORMED;
    *destination = h->length ? (char *)p->ids.data + h->offset : NULL;
    return LN_NET_FINE;
}

static ln_net_refusal place_values(sync_connection *c, sync_push *p, const ln_sync_variable *v, const ln_net_header *h,
                                   void **destination) {
    sync_buffer *buffer = h->encoding ? &p->coded : &p->values;
    /* Chunks of IDS and PUSH alternate. The first IDS chunk already gives the number of rows. */
    if (v->entry.kind == LN_SYNC_SPARSE && !p->ids_begun) return LN_NET_UNEXPECTED;
    if (h->offset == 0) {
        const uint64_t n = elements_of(v, p), plain = n * v->gradient_size;
        const bool fits =
            v->gradient == LINNET_F64 ? h->total == plain : ln_sync_encoded_fits(h->encoding, n, h->total);
        uint64_t more = h->total > buffer->capacity ? h->total : 0;
        if (p->begun) return LN_NET_MALFORMED;
        if (!fits) return LN_NET_WRONG_LENGTH;
        if (h->encoding && plain > p->values.capacity) more += plain;
        if (more && !make_room(c, more)) return LN_NET_FINE;
        if (!ln_sync_grow(c->server, buffer, h->total) || !ln_sync_grow(c->server, &p->values, plain))
            return LN_NET_OVER_LIMIT;
        p->begun = true;
        p->total = h->total;
        p->encoding = h->encoding;
        c->member->begun++;
    }
    if (h->offset != p->received || h->total != p->total || h->encoding != p->encoding || p->whole)
        return LN_NET_MALFORMED;
    *destination = h->length ? (char *)buffer->data + h->offset : NULL;
    return LN_NET_FINE;
}

static ln_net_refusal place(sync_connection *c, const ln_net_header *h, void **destination) {
    sync_member *m = c->member;
    const ln_sync_variable *v = ln_sync_manifest_get(c->server->manifest, h->tensor);
    sync_push *p;
    ln_net_refusal why;
    if (!m) return LN_NET_UNEXPECTED;
    if (!v) return LN_NET_UNKNOWN_TENSOR;
    if ((why = check_push(c, v, h)) != LN_NET_FINE || is_void(m, h->step)) return why;
    if (!m->pushes && !(m->pushes = calloc(c->server->manifest->count, sizeof *m->pushes))) return LN_NET_OVER_LIMIT;
    p = &m->pushes[h->tensor];
    why = h->type == LN_SYNC_IDS ? place_ids(c, p, h, destination) : place_values(c, p, v, h, destination);
    if (!why && !c->paused_since) p->flying = true;
    return why;
}

ln_net_refusal ln_sync_place_ids(sync_connection *c, const ln_net_header *h, void **destination) {
    return place(c, h, destination);
}

ln_net_refusal ln_sync_place_push(sync_connection *c, const ln_net_header *h, void **destination) {
    return place(c, h, destination);
}

/* ---- complete frames -------------------------------------------------------------------------------------------- */

/* Returns the push that a complete chunk belongs to; NULL if it no longer counts. */
static sync_push *arrived(const sync_connection *c, const ln_net_header *h) {
    sync_push *p = c->member->pushes ? &c->member->pushes[h->tensor] : NULL;
    if (p) p->flying = false;
    return is_void(c->member, h->step) ? NULL : p;
}

ln_net_refusal ln_sync_take_ids(sync_connection *c, const ln_net_header *h, const void *payload) {
    const ln_sync_variable *v = ln_sync_manifest_get(c->server->manifest, h->tensor);
    sync_push *p = arrived(c, h);
    (void)payload;
    if (!p || (p->ids_received += h->length) != 8 * p->rows) return LN_NET_FINE;
    int64_t *ids = p->ids.data;
    const int64_t first = (int64_t)v->entry.first_row;
    p->ids_whole = true;
    for (uint64_t i = 0; i < p->rows; i++) {
        if (ids[i] < first || (uint64_t)(ids[i] - first) >= v->entry.dims[0]) return LN_NET_MALFORMED;
        ids[i] -= first;
        if (i && ids[i] <= ids[i - 1]) return LN_NET_MALFORMED;
    }
    return LN_NET_FINE;
}

static void measure(sync_member *m, const void *values, uint64_t elements, int dtype) {
    const ln_sync_size size = m->finite ? ln_sync_size_of(values, elements, dtype) : LN_SYNC_INFINITE;
    if (size > m->size) m->size = size;
    m->finite = m->size != LN_SYNC_INFINITE;
}

ln_net_refusal ln_sync_take_push(sync_connection *c, const ln_net_header *h, const void *payload) {
    sync_member *m = c->member;
    const ln_sync_variable *v = ln_sync_manifest_get(c->server->manifest, h->tensor);
    sync_push *p = arrived(c, h);
    if (!p) return LN_NET_FINE;
    p->received += h->length;
    if (h->offset % v->gradient_size || h->length % v->gradient_size)
        p->cut = true;
    else if (!h->encoding) /* done while the value is still in the cache */
        measure(m, payload, h->length / v->gradient_size, v->gradient);
    if (p->received < p->total) return LN_NET_FINE;
    p->whole = true;
    if (h->encoding && ln_sync_decode(h->encoding, p->coded.data, p->total, p->values.data, elements_of(v, p)))
        return LN_NET_MALFORMED;
    if (h->encoding || p->cut) measure(m, p->values.data, elements_of(v, p), v->gradient);
    return LN_NET_FINE;
}

/* ---- COMMIT ----------------------------------------------------------------------------------------------------- */

static bool is_complete(const ln_sync_server *s, const sync_member *m, const ln_sync_commit *commit) {
    uint32_t whole = 0;
    for (uint32_t t = 0; t < s->manifest->count; t++) {
        const ln_sync_variable *v = &s->manifest->variables[t];
        const sync_push *p = m->pushes ? &m->pushes[t] : NULL;
        if (p && p->whole && (p->ids_whole || v->entry.kind != LN_SYNC_SPARSE))
            whole++;
        else if ((v->gradient && v->entry.kind != LN_SYNC_SPARSE) || (p && (p->begun || p->rows)))
            return false;
    }
    return whole == commit->pushes;
}

static void note(ln_sync_server *s, sync_member *m, const ln_sync_commit *commit) {
    const double seconds = (double)commit->computed * 1e-9;
    m->compute_ns = commit->computed;
    m->loss = commit->loss;
    m->staleness = s->version > commit->version ? s->version - commit->version : 0;
    if (seconds > 0) { /* averages seconds per example, so that one fast step has less influence than one slow step */
        const double pace = seconds / commit->weight;
        m->speed = 1 / (m->speed > 0 ? 0.7 / m->speed + 0.3 * pace : pace);
    }
}

ln_net_refusal ln_sync_take_commit(sync_connection *c, const ln_net_header *h, const void *payload) {
    ln_sync_server *s = c->server;
    sync_member *m = c->member;
    sync_group *g = m ? m->group : NULL;
    ln_sync_commit commit;
    if (!m) return LN_NET_UNEXPECTED;
    if (!ln_sync_commit_read(&commit, payload, h->length)) return LN_NET_MALFORMED;
    if (commit.flags & LN_SYNC_COMMIT_ABANDON) {
        if (h->step == g->step && !m->committed) ln_sync_discard(s, m, false);
        if (h->step < g->step && !(m->decided && m->last == h->step)) ln_sync_count_late(s, m, h->step);
        return LN_NET_FINE;
    }
    if (h->step > g->step) return LN_NET_UNEXPECTED;
    if (!(commit.weight > 0) || !isfinite(commit.weight)) return LN_NET_MALFORMED;
    c->pull_after = (commit.flags & LN_SYNC_COMMIT_PULL) != 0;
    if (h->step < g->step) {
        const uint8_t outcome = m->decided && m->last == h->step ? m->outcome : LN_SYNC_LATE;
        if (outcome == LN_SYNC_LATE) ln_sync_count_late(s, m, h->step);
        ln_sync_acknowledge(c, h->step, outcome);
        return LN_NET_FINE;
    }
    if (m->committed) return LN_NET_FINE; /* repeated over another connection; the step's end sends the ACK */
    if (!is_complete(s, m, &commit)) {
        ln_sync_refuse_peer(c, LN_NET_MALFORMED, commit.pushes, "a gradient is missing before COMMIT");
        return LN_NET_MALFORMED;
    }
    if (s->manifest->takes_not_finite) m->finite = true;
    if (s->token == c) s->token = NULL;
    m->committed = true;
    m->commit = commit;
    note(s, m, &commit);
    if (!g->committed) g->clock[0] = s->now;
    g->clock[1] = s->now;
    g->committed++;
    g->finite += m->finite;
    if (m->live && m->from <= g->step) g->awaited--;
    ln_sync_consider(s, g);
    return LN_NET_FINE;
}
