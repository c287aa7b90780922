/* server_update.c - makes one update of the variables from gradients that the caller has written where ln_sync_placed
 * says. New steps use this code, and so do steps that are replayed from the journal. */
#include "sync/server/server_update.h"

#include "net/error.h"
#include "sync/codec/compress.h"
#include "sync/common/combine.h"
#include "sync/server/server_memory.h"
#include "sync/server/server_pull.h"
#include "sync/server/server_state.h"

#include <string.h>

/* Returns the bytes of the mean of an averaged value, rounded up to a multiple of 8. */
static uint64_t mean_bytes(const ln_sync_variable *v) { return (v->elements * v->gradient_size + 7) / 8 * 8; }

static bool make_room_for_means(ln_sync_server *s) {
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < s->manifest->count; t++)
        if (s->manifest->variables[t].entry.kind == LN_SYNC_AVERAGED) bytes += mean_bytes(&s->manifest->variables[t]);
    return ln_sync_grow(s, &s->means, bytes);
}

/* Returns where the combined gradient or mean of tensor t is stored until the update. */
void ln_sync_placed(ln_sync_server *s, uint32_t t, int64_t **ids, void **values) {
    uint64_t at = 0;
    *ids = NULL;
    if (s->manifest->variables[t].entry.kind != LN_SYNC_AVERAGED) {
        s->apply.place(s->apply.context, t, ids, values);
        return;
    }
    for (uint32_t i = 0; i < t; i++)
        if (s->manifest->variables[i].entry.kind == LN_SYNC_AVERAGED) at += mean_bytes(&s->manifest->variables[i]);
    *values = (char *)s->means.data + at;
}

linnet_status ln_sync_prepare_step(ln_sync_server *s, linnet_error *error) {
    if (!make_room_for_means(s)) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for averaged values");
    return s->apply.prepare(s->apply.context, s->rows, error);
}

ln_sync_size ln_sync_size_placed(ln_sync_server *s) {
    ln_sync_size most = LN_SYNC_ORDINARY;
    for (uint32_t t = 0; t < s->manifest->count; t++) {
        const ln_sync_variable *v = &s->manifest->variables[t];
        const bool sparse = v->entry.kind == LN_SYNC_SPARSE;
        ln_sync_size size;
        int64_t *ids;
        void *values;
        if (!v->gradient || (sparse && !s->rows[t])) continue;
        ln_sync_placed(s, t, &ids, &values);
        size = ln_sync_size_of(values, sparse ? s->rows[t] * v->row_elements : v->elements, v->gradient);
        if (size == LN_SYNC_LARGE && v->entry.kind == LN_SYNC_AVERAGED) continue; /* no update computes with a mean */
        if (size > most) most = size;
    }
    return most;
}

/* Tries an update that may overflow, before the journal is written. *made: the update was tried and has succeeded. */
linnet_status ln_sync_try_update(ln_sync_server *s, ln_sync_size size, bool *made, bool *finite, linnet_error *error) {
    ln_sync_size left = LN_SYNC_ORDINARY;
    linnet_status status;
    *made = *finite = true;
    if (!s->apply.try_update || (size == LN_SYNC_ORDINARY && !s->large)) {
        *made = false;
        return LINNET_OK;
    }
    ln_sync_detach(s, 0, s->manifest->count);
    status = s->apply.try_update(s->apply.context, &left, error);
    if (status) return status;
    *made = *finite = left != LN_SYNC_INFINITE;
    if (*made) s->large = left == LN_SYNC_LARGE;
    return LINNET_OK;
}

static void store_mean(ln_sync_server *s, uint32_t t) {
    const ln_sync_variable *v = &s->manifest->variables[t];
    void *to = s->apply.value(s->apply.context, t, true), *values;
    int64_t *ids;
    ln_sync_placed(s, t, &ids, &values);
    if (v->entry.dtype == LINNET_F16 || v->entry.dtype == LINNET_BF16)
        ln_sync_encode(v->entry.dtype == LINNET_F16 ? LN_SYNC_F16 : LN_SYNC_BF16, 1, values, NULL, v->elements, to);
    else
        memcpy(to, values, (size_t)v->bytes);
}

/* Makes the update with the combined gradients. */
linnet_status ln_sync_make_update(ln_sync_server *s, bool made, linnet_error *error) {
    linnet_status status = LINNET_OK;
    if (!made) status = (ln_sync_detach(s, 0, s->manifest->count), s->apply.update(s->apply.context, error));
    if (status) return status;
    s->version++;
    for (uint32_t t = 0; t < s->manifest->count; t++) {
        if (s->manifest->variables[t].entry.kind == LN_SYNC_AVERAGED) store_mean(s, t);
        s->tensors[t].changed = s->version;
    }
    return LINNET_OK;
}
