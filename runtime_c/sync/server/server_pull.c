/* server_pull.c - sends values: whole tensors directly from the variables' memory, rows and reports from copies. A
 * value that goes out as f16 or bf16 is encoded once for all readers of its version. Before an update changes a value
 * that a slow reader has not completely received, the value is copied, if max_bytes allows it. */
#include "sync/server/server_pull.h"

#include "net/stream_send.h"
#include "sync/codec/compress.h"
#include "sync/codec/digest.h"
#include "sync/codec/manifest.h"
#include "sync/server/server_memory.h"
#include "sync/server/server_peers.h"
#include "sync/server/server_state.h"

#include <stdlib.h>
#include <string.h>

enum { SUMMED = 64 << 10 }; /* checksums are kept for values of at least this size in bytes */

static bool bit(const uint64_t *bits, uint32_t i) { return bits[i / 64] >> i % 64 & 1; }
static void set_bit(uint64_t *bits, uint32_t i) { bits[i / 64] |= UINT64_C(1) << i % 64; }
static void clear_bit(uint64_t *bits, uint32_t i) { bits[i / 64] &= ~(UINT64_C(1) << i % 64); }

static bool begin_pulls(sync_connection *c) {
    const uint32_t n = c->server->manifest->count, words = n / 64 + 1;
    if (c->known) return true;
    c->known = malloc((n + 2 * (size_t)words) * sizeof *c->known); /* one block: versions and both sets of bits */
    if (!c->known) return false;
    memset(c->known, 0xff, n * sizeof *c->known);
    memset(c->known + n, 0, 2 * words * sizeof *c->known);
    c->wanted = c->known + n;
    c->held = c->wanted + words;
    return true;
}

static void want(sync_connection *c, uint32_t t) {
    if (!bit(c->wanted, t)) c->wanted_count++;
    set_bit(c->wanted, t);
}

void ln_sync_free_pulls(sync_connection *c) {
    free(c->known);
    c->known = NULL;
    for (sync_send *send = c->replies, *next; send; send = next) {
        next = send->next;
        ln_sync_released(send);
    }
    c->replies = NULL;
    c->replies_end = &c->replies;
    for (struct sync_rows *rows = c->rows, *next; rows; rows = next) {
        next = rows->next;
        c->server->used -= rows->reserved;
        free(rows->ids);
        free(rows);
    }
    c->rows = NULL;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

static bool has_digest(ln_sync_server *s, uint32_t t, const unsigned char digest[16]) {
    sync_tensor *tensor = &s->tensors[t];
    if (!tensor->digest_known || tensor->digest_version != tensor->changed) {
        tensor->digest[0] = tensor->digest[1] = 0;
        ln_sync_digest(s->apply.value(s->apply.context, t, false), (size_t)s->manifest->variables[t].bytes,
                       tensor->digest);
        tensor->digest_version = tensor->changed;
        tensor->digest_known = true;
    }
    for (int i = 0; i < 16; i++)
        if (digest[i] != (unsigned char)(tensor->digest[i / 8] >> 8 * (i % 8))) return false;
    return true;
}

ln_net_refusal ln_sync_take_pull(sync_connection *c, const ln_net_header *h, const void *payload) {
    ln_sync_server *s = c->server;
    ln_sync_pull entry;
    if (h->length % LN_SYNC_PULL_BYTES) return LN_NET_MALFORMED;
    if (!begin_pulls(c)) return LN_NET_OVER_LIMIT;
    for (size_t i = 0; i < h->length / LN_SYNC_PULL_BYTES; i++) {
        if (!ln_sync_pull_read(&entry, payload, h->length, i)) return LN_NET_MALFORMED;
        if (entry.tensor >= s->manifest->count) return LN_NET_UNKNOWN_TENSOR;
        c->known[entry.tensor] = entry.version <= s->version ? entry.version : LN_SYNC_NONE;
        if (entry.flags & LN_SYNC_PULL_DIGEST) { /* an encoded value is always sent: who has the exact value lacks it */
            const bool encoded = ln_sync_pulled_as(&s->manifest->variables[entry.tensor], c->hello.encodings);
            const bool same = !encoded && has_digest(s, entry.tensor, entry.digest);
            c->known[entry.tensor] = same ? s->version : LN_SYNC_NONE;
        }
        set_bit(c->held, entry.tensor);
        want(c, entry.tensor);
    }
    ln_sync_wake(c);
    return LN_NET_FINE;
}

void ln_sync_want_held(sync_connection *c) {
    if (!c->known) return;
    for (uint32_t t = 0; t < c->server->manifest->count; t++)
        if (bit(c->held, t)) want(c, t);
}

static struct sync_rows *find_rows(sync_connection *c, uint32_t t) {
    struct sync_rows *rows = c->rows;
    while (rows && rows->tensor != t) rows = rows->next;
    return rows;
}

ln_net_refusal ln_sync_place_rows(sync_connection *c, const ln_net_header *h, void **destination) {
    ln_sync_server *s = c->server;
    const ln_sync_variable *v = ln_sync_manifest_get(s->manifest, h->tensor);
    struct sync_rows *rows;
    uint64_t bytes;
    if (!v || !v->entry.rank) return LN_NET_UNKNOWN_TENSOR;
    if (h->total % 8 || h->total / 8 > v->entry.dims[0]) return LN_NET_WRONG_LENGTH;
    rows = find_rows(c, h->tensor);
    if (h->offset == 0) {
        bytes = h->total + h->total / 8 * v->row_bytes;
        if (rows) return LN_NET_MALFORMED;
        if (bytes > s->config.max_bytes) return LN_NET_OVER_LIMIT;
        if (!ln_sync_fits(s, bytes)) {
            ln_sync_pause_peer(c);
            return LN_NET_FINE;
        }
        rows = calloc(1, sizeof *rows);
        if (rows) rows->ids = malloc(h->total ? (size_t)h->total : 1);
        if (!rows || !rows->ids) {
            free(rows);
            return LN_NET_OVER_LIMIT;
        }
        rows->tensor = h->tensor;
        rows->total = h->total;
        rows->reserved = bytes; /* also counts the bytes of the answer, because many requests may arrive before the
                                   first answer is made */
        rows->next = c->rows;
        c->rows = rows;
        s->used += bytes;
    }
    if (!rows || h->offset != rows->received || h->total != rows->total) return LN_NET_MALFORMED;
    *destination = h->length ? (char *)rows->ids + h->offset : NULL;
    return LN_NET_FINE;
}

static void count_values(ln_sync_server *s, uint64_t plain, uint64_t sent) {
    s->values_sent += sent;
    s->values_saved += plain - sent;
}

/* Copies the requested rows, all of one version. Returns NULL if out of memory or if *why is set. */
static void *copy_rows(ln_sync_server *s, const struct sync_rows *rows, int encoding, ln_net_refusal *why) {
    const ln_sync_variable *v = &s->manifest->variables[rows->tensor];
    const char *value = s->apply.value(s->apply.context, rows->tensor, false);
    const uint64_t n = rows->total / 8, row_sent = encoding ? v->row_elements * 2 : v->row_bytes;
    char *copy = malloc((size_t)(n * row_sent) + 1);
    *why = LN_NET_OVER_LIMIT;
    for (uint64_t i = 0; copy && i < n; i++) {
        const uint64_t row = (uint64_t)rows->ids[i] - v->entry.first_row;
        if (rows->ids[i] < 0 || row >= v->entry.dims[0]) {
            *why = LN_NET_MALFORMED;
            free(copy);
            return NULL;
        }
        const void *from = value + row * v->row_bytes;
        if (encoding)
            ln_sync_encode(encoding, 1, from, NULL, v->row_elements, copy + i * row_sent);
        else
            memcpy(copy + i * row_sent, from, (size_t)row_sent);
    }
    return copy;
}

ln_net_refusal ln_sync_take_rows(sync_connection *c, const ln_net_header *h, const void *payload) {
    ln_sync_server *s = c->server;
    struct sync_rows *rows = find_rows(c, h->tensor), **at = &c->rows;
    const ln_sync_variable *v = &s->manifest->variables[h->tensor];
    const int encoding = ln_sync_pulled_as(v, c->hello.encodings);
    const uint64_t bytes = h->total / 8 * (encoding ? v->row_elements * 2 : v->row_bytes);
    ln_net_refusal why;
    void *copy;
    (void)payload;
    rows->received += h->length;
    if (rows->received < rows->total) return LN_NET_FINE;
    copy = copy_rows(s, rows, encoding, &why);
    while (*at != rows) at = &(*at)->next;
    *at = rows->next;
    s->used -= rows->reserved;
    free(rows->ids);
    free(rows);
    if (copy) count_values(s, v->row_bytes * (h->total / 8), bytes);
    return copy && ln_sync_reply(c, LN_SYNC_DATA, (uint8_t)encoding, h->tensor, copy, bytes) ? LN_NET_FINE : why;
}

/* ---- answers to requests ---------------------------------------------------------------------------------------- */

static sync_send *new_send(sync_connection *c, uint8_t type, uint32_t tensor) {
    ln_sync_server *s = c->server;
    sync_send *send = s->free_sends;
    if (send)
        s->free_sends = send->next;
    else
        send = malloc(sizeof *send);
    if (!send) return NULL;
    memset(send, 0, sizeof *send);
    send->connection = c;
    send->type = type;
    send->tensor = tensor;
    send->version = s->version;
    return send;
}

static void link_send(sync_send **list, sync_send *send) {
    send->previous = NULL;
    send->next = *list;
    if (*list) (*list)->previous = send;
    *list = send;
}

static void unlink_send(sync_send **list, sync_send *send) {
    if (send->previous)
        send->previous->next = send->next;
    else
        *list = send->next;
    if (send->next) send->next->previous = send->previous;
}

void ln_sync_released(sync_send *send) {
    sync_connection *c = send->connection;
    ln_sync_server *s = c->server;
    if (send->own) {
        free(send->own);
        s->used -= send->bytes;
    } else if (send->copy) {
        unlink_send(&s->copied, send);
        if (--send->copy->references == 0) {
            s->used -= send->copy->bytes;
            free(send->copy);
        }
    } else {
        unlink_send(&s->tensors[send->tensor].readers, send);
    }
    send->next = s->free_sends;
    s->free_sends = send;
    ln_sync_wake(c);
    if (s->paused) ln_sync_resume_peers(s);
}

bool ln_sync_reply(sync_connection *c, uint8_t type, uint8_t encoding, uint32_t tensor, void *own, uint64_t bytes) {
    sync_send *send = new_send(c, type, tensor);
    if (!send) {
        free(own);
        return false;
    }
    send->own = own;
    send->encoding = encoding;
    send->bytes = bytes;
    c->server->used += bytes;
    *c->replies_end = send;
    c->replies_end = &send->next;
    ln_sync_wake(c);
    return true;
}

/* Returns the checksums of the value's chunks, which are computed once for all readers. Returns NULL if the value is
 * small or there is no memory. */
static uint32_t *sums_of(ln_sync_server *s, const sync_send *send, uint64_t bytes) {
    sync_tensor *tensor = &s->tensors[send->tensor];
    const size_t count = (size_t)(bytes / s->config.chunk) + 1;
    if (send->own || send->type != LN_SYNC_DATA || bytes < SUMMED) return NULL;
    if (send->encoding) return tensor->coded[send->encoding - LN_SYNC_F16]->sums;
    if (!tensor->sums) tensor->sums = calloc(count, sizeof *tensor->sums);
    if (tensor->sums && tensor->sums_version != tensor->changed) memset(tensor->sums, 0, count * sizeof *tensor->sums);
    tensor->sums_version = tensor->changed;
    return tensor->sums;
}

static bool queue(sync_connection *c, sync_send *send, const void *data, uint64_t bytes) {
    ln_sync_server *s = c->server;
    ln_net_header h;
    memset(&h, 0, sizeof h);
    h.type = send->type;
    h.encoding = send->encoding;
    h.flags = send->own && send->type == LN_SYNC_DATA ? LN_SYNC_FLAG_ROWS : 0;
    h.tensor = send->tensor;
    h.step = send->version;
    return ln_net_stream_shared(c->stream, &h, data, bytes, (uint64_t)(uintptr_t)send, sums_of(s, send, bytes),
                                s->config.chunk);
}

static bool send_replies(sync_connection *c) {
    while (c->replies) {
        sync_send *send = c->replies, *next = send->next;
        if (!queue(c, send, send->own, send->bytes)) return false;
        if (!next) c->replies_end = &c->replies;
        c->replies = next;
    }
    return true;
}

/* Returns the value's bytes in this encoding, and their number in *bytes. An encoded value is kept for the other
 * readers of its version, and its memory for the next version. NULL: out of memory. */
static const void *value_as(ln_sync_server *s, uint32_t t, int encoding, uint64_t *bytes) {
    const ln_sync_variable *v = &s->manifest->variables[t];
    const void *value = s->apply.value(s->apply.context, t, false);
    *bytes = v->bytes;
    if (encoding == LN_SYNC_PLAIN) return value;
    sync_copy **coded = &s->tensors[t].coded[encoding - LN_SYNC_F16];
    const uint64_t half = v->elements * 2, sums_at = (half + 3) / 4 * 4;
    const size_t sums = ((size_t)(half / s->config.chunk) + 1) * sizeof *(*coded)->sums;
    *bytes = half;
    if (!*coded) {
        if (!(*coded = malloc(64 + (size_t)sums_at + sums))) return NULL;
        **coded = (sync_copy){.version = LN_SYNC_NONE, .bytes = half};
        (*coded)->sums = (uint32_t *)(void *)((char *)*coded + 64 + sums_at);
    }
    if ((*coded)->version != s->tensors[t].changed) {
        ln_sync_encode(encoding, 1, value, NULL, v->elements, (char *)*coded + 64);
        memset((*coded)->sums, 0, sums);
        (*coded)->version = s->tensors[t].changed;
    }
    return (char *)*coded + 64;
}

static bool is_same(const sync_connection *c, uint32_t t) {
    return c->known[t] != LN_SYNC_NONE && c->server->tensors[t].changed <= c->known[t];
}

/* Sends SAME entries for the tensors that have not changed. */
static void send_same(sync_connection *c) {
    const ln_sync_server *s = c->server;
    unsigned char payload[LN_NET_CONTROL_MAX];
    uint32_t numbers[LN_NET_CONTROL_MAX / LN_SYNC_SAME_BYTES];
    for (uint32_t t = 0, n; t < s->manifest->count;) {
        for (n = 0; t < s->manifest->count && n < LN_NET_CONTROL_MAX / LN_SYNC_SAME_BYTES; t++) {
            const ln_sync_same entry = {t, s->version};
            if (!bit(c->wanted, t) || !is_same(c, t)) continue;
            ln_sync_same_write(&entry, payload + n * LN_SYNC_SAME_BYTES);
            numbers[n++] = t;
        }
        if (!n || !ln_sync_tell(c, LN_SYNC_SAME, s->version, payload, n * LN_SYNC_SAME_BYTES)) return;
        for (uint32_t i = 0; i < n; i++) {
            clear_bit(c->wanted, numbers[i]);
            c->known[numbers[i]] = s->version;
        }
        c->wanted_count -= n;
    }
}

void ln_sync_answer_pulls(sync_connection *c) {
    ln_sync_server *s = c->server;
    const uint32_t n = s->manifest->count;
    if (!send_replies(c) || !c->wanted_count) return;
    send_same(c);
    for (uint32_t i = 0; c->wanted_count && i < n; i++) {
        const uint32_t t = (c->cursor + i) % n;
        sync_send *send;
        if (!bit(c->wanted, t) || is_same(c, t)) continue;
        if (!(send = new_send(c, LN_SYNC_DATA, t))) return;
        uint64_t bytes;
        send->encoding = (uint8_t)ln_sync_pulled_as(&s->manifest->variables[t], c->hello.encodings);
        const void *value = value_as(s, t, send->encoding, &bytes);
        link_send(&s->tensors[t].readers, send);
        if (!value || !queue(c, send, value, bytes)) {
            unlink_send(&s->tensors[t].readers, send); /* no free place; this is called again when there is one */
            send->next = s->free_sends;
            s->free_sends = send;
            c->cursor = t;
            return;
        }
        count_values(s, s->manifest->variables[t].bytes, bytes);
        clear_bit(c->wanted, t);
        c->wanted_count--;
        c->known[t] = s->version;
    }
}

/* ---- before an update ------------------------------------------------------------------------------------------- */

/* Returns the first message that reads the tensor's current value in this encoding. */
static sync_send *reader_of(const ln_sync_server *s, uint32_t t, int encoding) {
    sync_send *send = s->tensors[t].readers;
    while (send && send->encoding != encoding) send = send->next;
    return send;
}

/* Returns what the readers of the current value read from now on: a copy of the plain value, or the encoded value
 * itself. NULL: no room, or no readers. */
static sync_copy *make_copy(ln_sync_server *s, uint32_t t, int encoding) {
    const uint64_t bytes = s->manifest->variables[t].bytes / (encoding ? 2 : 1);
    sync_copy *copy;
    /* Drops the readers that have been reading the longest, so that slow readers do not use up the memory for
     * others. */
    while (!ln_sync_fits(s, bytes) && s->copied) {
        sync_send *oldest = s->copied;
        while (oldest->next) oldest = oldest->next;
        s->dropped_readers++;
        ln_sync_drop_peer(oldest->connection);
    }
    if (!ln_sync_fits(s, bytes) || !reader_of(s, t, encoding)) return NULL;
    if (encoding) {
        copy = s->tensors[t].coded[encoding - LN_SYNC_F16];
        s->tensors[t].coded[encoding - LN_SYNC_F16] = NULL; /* the next version gets its own memory */
    } else {
        copy = malloc(64 + (size_t)bytes);
        if (!copy) return NULL;
        memset(copy, 0, sizeof *copy);
        copy->bytes = bytes;
        memcpy((char *)copy + 64, s->apply.value(s->apply.context, t, false), (size_t)bytes);
    }
    s->used += bytes;
    s->copies++;
    return copy;
}

static void detach(ln_sync_server *s, uint32_t t, int encoding) {
    const void *value = s->apply.value(s->apply.context, t, false);
    sync_copy *copy = make_copy(s, t, encoding);
    for (sync_send *send; (send = reader_of(s, t, encoding));) {
        if (!copy) {
            s->dropped_readers++;
            ln_sync_drop_peer(send->connection);
            continue;
        }
        if (!encoding) ln_net_stream_move(send->connection->stream, value, copy->bytes, (char *)copy + 64);
        unlink_send(&s->tensors[t].readers, send);
        send->copy = copy;
        copy->references++;
        link_send(&s->copied, send);
    }
}

void ln_sync_detach(ln_sync_server *s, uint32_t first, uint32_t end) {
    for (uint32_t t = first; t < end; t++)
        for (int encoding = LN_SYNC_PLAIN; s->tensors[t].readers && encoding <= LN_SYNC_BF16; encoding++)
            detach(s, t, encoding);
}
