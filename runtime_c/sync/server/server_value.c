/* server_value.c - values that clients have put: which puts are stored already, and how a value is stored. The journal
 * repeats them in the same way. */
#include "sync/server/server_value.h"

#include "sync/common/combine.h"
#include "sync/server/server_pull.h"
#include "sync/server/server_state.h"

#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 1024, BLOCK = 4096 }; /* CLIENTS: processes whose last put is remembered */

sync_putter *ln_sync_putter(ln_sync_server *s, uint64_t incarnation) {
    for (uint32_t i = 0; i < s->putter_count; i++)
        if (s->putters[i].incarnation == incarnation) return &s->putters[i];
    return NULL;
}

bool ln_sync_note_put(ln_sync_server *s, uint64_t incarnation, uint64_t number) {
    sync_putter *putter = ln_sync_putter(s, incarnation), last = {incarnation, number};
    if (!s->putters && !(s->putters = calloc(CLIENTS, sizeof *s->putters))) return false;
    if (!putter && s->putter_count == CLIENTS) { /* forgets the process whose last put is the oldest */
        putter = s->putters;
        s->forgot_put_epoch = s->config.epoch;
    } else if (!putter) {
        s->putters[s->putter_count++] = last;
        return true;
    }
    memmove(putter, putter + 1, (size_t)(s->putters + s->putter_count - 1 - putter) * sizeof *putter);
    s->putters[s->putter_count - 1] = last;
    return true;
}

ln_sync_size ln_sync_size_of_value(const ln_sync_variable *v, const void *data) {
    const uint16_t *half = data, exponent = v->entry.dtype == LINNET_F16 ? 0x7c00 : 0x7f80;
    if (v->entry.dtype == LINNET_F32 || v->entry.dtype == LINNET_F64)
        return ln_sync_size_of(data, v->elements, v->entry.dtype);
    if (v->entry.dtype != LINNET_F16 && v->entry.dtype != LINNET_BF16) return LN_SYNC_ORDINARY;
    for (uint64_t i = 0; i < v->elements; i++)
        if ((half[i] & exponent) == exponent) return LN_SYNC_INFINITE;
    return LN_SYNC_LARGE;
}

void ln_sync_store_value(ln_sync_server *s, uint32_t t, const void *data) {
    const ln_sync_variable *v = &s->manifest->variables[t];
    const char *from = data;
    char *to;
    ln_sync_detach(s, t, t + 1);
    to = s->apply.value(s->apply.context, t, true);
    for (uint64_t at = 0; at < v->bytes; at += BLOCK) { /* pages of zeros that stay zeros take no memory */
        const size_t n = v->bytes - at < BLOCK ? (size_t)(v->bytes - at) : BLOCK;
        if (memcmp(to + at, from + at, n)) memcpy(to + at, from + at, n);
    }
    /* Updates are tried from now on. The next one finds out whether that is needed. */
    if (ln_sync_size_of_value(v, data) == LN_SYNC_LARGE) s->large = true;
    s->version++;
    s->sequence++;
    s->tensors[t].changed = s->version;
}
