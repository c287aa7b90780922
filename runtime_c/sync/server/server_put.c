/* server_put.c - PUT: a client sets the value of a variable. The value is checked, written to the journal, and stored
 * between two updates. Each put of a process counts once: the server keeps the number of the last one. */
#include "sync/server/server_put.h"

#include "net/error.h"
#include "sync/codec/manifest.h"
#include "sync/server/record.h"
#include "sync/server/server_memory.h"
#include "sync/server/server_peers.h"
#include "sync/server/server_state.h"
#include "sync/server/server_value.h"

#include <string.h>

/* Tells whether the process was here before, and the server no longer knows which of its puts it has stored. */
static bool is_forgotten(ln_sync_server *s, const sync_connection *c) {
    return c->hello.epoch && c->hello.epoch <= s->forgot_put_epoch && !ln_sync_putter(s, c->hello.incarnation);
}

ln_net_refusal ln_sync_place_put(sync_connection *c, const ln_net_header *h, void **destination) {
    ln_sync_server *s = c->server;
    const ln_sync_variable *v = ln_sync_manifest_get(s->manifest, h->tensor);
    struct sync_put *put = &c->put;
    if (!v) return LN_NET_UNKNOWN_TENSOR;
    if (v->entry.kind == LN_SYNC_READ_ONLY) return LN_NET_UNEXPECTED; /* only the update changes it */
    if (h->total != v->bytes) return LN_NET_WRONG_LENGTH;
    if (h->offset == 0) {
        const sync_putter *last = ln_sync_putter(s, c->hello.incarnation);
        if (put->begun || c->stored_due)
            return LN_NET_UNEXPECTED; /* one at a time, each after the answer to the last */
        if (!h->step || (last && h->step < last->number)) return LN_NET_MALFORMED;
        if (is_forgotten(s, c)) return LN_NET_FORGOTTEN;
        put->repeated = last && h->step == last->number;
        if (!put->repeated && h->total > s->config.max_bytes) {
            ln_sync_refuse_peer(c, LN_NET_OVER_LIMIT, h->tensor, "the value is larger than the server's max_bytes");
            return LN_NET_OVER_LIMIT;
        }
        if (!put->repeated && !ln_sync_fits(s, h->total)) ln_sync_trim(s);
        if (!put->repeated && !ln_sync_fits(s, h->total)) {
            ln_sync_pause_peer(c);
            return LN_NET_FINE;
        }
        if (!put->repeated && !ln_sync_grow(s, &put->value, h->total)) return LN_NET_OVER_LIMIT;
        put->begun = true;
        put->tensor = h->tensor;
        put->number = h->step;
        put->received = 0;
    }
    if (!put->begun || h->tensor != put->tensor || h->step != put->number || h->offset != put->received)
        return LN_NET_MALFORMED;
    *destination = h->length && !put->repeated ? (char *)put->value.data + h->offset : NULL;
    return LN_NET_FINE;
}

static bool are_booleans(const ln_sync_variable *v, const unsigned char *data) {
    for (uint64_t i = 0; v->entry.dtype == LINNET_BOOL && i < v->elements; i++)
        if (data[i] > 1) return false;
    return true;
}

/* Stores the value, after the journal has it. */
static linnet_status store(ln_sync_server *s, const sync_connection *c, linnet_error *error) {
    const uint64_t incarnation = c->hello.incarnation;
    const uint32_t t = c->put.tensor;
    linnet_status status = ln_sync_append_put(s, incarnation, c->put.number, t, c->put.value.data, error);
    if (status) return status;
    if (!ln_sync_note_put(s, incarnation, c->put.number))
        return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for the numbers of puts");
    ln_sync_store_value(s, t, c->put.value.data);
    s->puts++;
    return LINNET_OK;
}

ln_net_refusal ln_sync_take_put(sync_connection *c, const ln_net_header *h, const void *payload) {
    ln_sync_server *s = c->server;
    const ln_sync_variable *v = &s->manifest->variables[h->tensor];
    struct sync_put *put = &c->put;
    linnet_error error;
    (void)payload;
    put->received += h->length;
    if (put->received < h->total) return LN_NET_FINE;
    put->begun = false;
    /* Another connection of this process may have completed the same put meanwhile. */
    const sync_putter *last = ln_sync_putter(s, c->hello.incarnation);
    put->repeated = put->repeated || (last && last->number >= put->number);
    c->stored.outcome = LN_SYNC_APPLIED;
    if (!put->repeated && !are_booleans(v, put->value.data)) return LN_NET_MALFORMED;
    if (!put->repeated && ln_sync_size_of_value(v, put->value.data) == LN_SYNC_INFINITE)
        c->stored.outcome = LN_SYNC_NOT_FINITE;
    else if (!put->repeated && store(s, c, &error)) {
        ln_sync_fail_server(s, &error);
        return LN_NET_SHUTTING_DOWN;
    }
    ln_sync_empty(s, &put->value);
    c->stored.version = s->version;
    c->stored_number = put->number;
    c->stored_due = true;
    ln_sync_wake(c);
    ln_sync_resume_peers(s);
    return LN_NET_FINE;
}
