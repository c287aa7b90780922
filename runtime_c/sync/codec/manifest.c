/* manifest.c - the table of tensors: writes it to TENSORS frames, reads it from such frames, and looks up entries.
 * manifest_model.c makes the table from a model. */
#include "sync/codec/manifest.h"

#include "net/error.h"
#include "sync/codec/compress.h"
#include "sync/codec/digest.h"
#include "sync/codec/payload.h"

#include <stdlib.h>
#include <string.h>

linnet_status ln_sync_manifest_create(uint32_t count, ln_sync_manifest **out, linnet_error *error) {
    ln_sync_manifest *m = NULL;
    *out = NULL;
    if (count > LN_SYNC_TENSORS_MAX) {
        ln_sync_fail(error, LINNET_TOO_LARGE, "there are more tensors to send than the protocol can number");
        ln_sync_expected(error, "at most %d", (int)LN_SYNC_TENSORS_MAX);
        return ln_sync_got(error, "%u", (unsigned)count), LINNET_TOO_LARGE;
    }
    m = calloc(1, sizeof *m);
    if (m) m->variables = calloc(count ? count : 1, sizeof *m->variables);
    if (!m || !m->variables) {
        free(m);
        return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a table of %u tensors", (unsigned)count);
    }
    m->room = count;
    *out = m;
    return LINNET_OK;
}

void ln_sync_manifest_free(ln_sync_manifest *m) {
    if (!m) return;
    free(m->variables);
    free(m->signatures);
    free(m);
}

/* Computes the values that follow from the entry. Returns false if its sizes overflow or its dtype is unknown. */
static bool derive(ln_sync_variable *v) {
    const ln_sync_tensor *e = &v->entry;
    const uint64_t size = linnet_dtype_size(e->dtype);
    uint64_t row = 1;
    if (size == 0) return false;
    for (int i = 1; i < e->rank; i++) {
        if (e->dims[i] && row > (uint64_t)INT64_MAX / 16 / e->dims[i]) return false;
        row *= e->dims[i];
    }
    v->row_elements = row;
    v->row_bytes = row * size;
    v->elements = row;
    if (e->rank > 0) {
        if (e->dims[0] && row > (uint64_t)INT64_MAX / 16 / e->dims[0]) return false;
        v->elements = row * e->dims[0];
    }
    v->bytes = v->elements * size;
    v->gradient = e->kind == LN_SYNC_READ_ONLY ? LINNET_NONE : e->dtype == LINNET_F64 ? LINNET_F64 : LINNET_F32;
    v->gradient_size = (uint8_t)linnet_dtype_size(v->gradient);
    return true;
}

/* Adds an entry. Returns FINE, or the reason why the entry is invalid. */
static ln_net_refusal add(ln_sync_manifest *m, const ln_sync_tensor *entry) {
    ln_sync_variable *v = &m->variables[m->count];
    const uint64_t mine = entry->rank ? entry->dims[0] : 1;
    if (m->count >= m->room || entry->number != m->count) return LN_NET_MALFORMED;
    if (entry->rank && (entry->first_row > entry->rows || mine > entry->rows - entry->first_row))
        return LN_NET_MALFORMED;
    v->entry = *entry;
    if (!derive(v)) return LN_NET_MALFORMED;
    m->count++;
    if (v->gradient && entry->kind != LN_SYNC_SPARSE) m->push_bytes += v->elements * v->gradient_size;
    return LN_NET_FINE;
}

ln_net_refusal ln_sync_manifest_take(ln_sync_manifest *m, const void *payload, size_t length) {
    const unsigned char *p = payload;
    size_t at = 0;
    while (at < length) {
        ln_sync_tensor entry;
        const size_t bytes = ln_sync_tensor_read(&entry, p + at, length - at);
        ln_net_refusal why;
        if (bytes == 0) return LN_NET_MALFORMED;
        if ((why = add(m, &entry)) != LN_NET_FINE) return why;
        at += bytes;
    }
    ln_sync_digest(payload, length, m->digest);
    return LN_NET_FINE;
}

size_t ln_sync_manifest_payload(const ln_sync_manifest *m, uint32_t *next, unsigned char *payload) {
    size_t used = 0;
    while (*next < m->count) {
        unsigned char entry[LN_SYNC_TENSOR_BYTES];
        const size_t bytes = ln_sync_tensor_write(&m->variables[*next].entry, entry);
        if (used + bytes > LN_NET_CONTROL_MAX) break;
        memcpy(payload + used, entry, bytes);
        used += bytes;
        ++*next;
    }
    return used;
}

int ln_sync_pulled_as(const ln_sync_variable *v, uint32_t encodings) {
    enum { ENCODED_FROM = 1024 }; /* elements; encoding a smaller tensor saves too little */
    const ln_sync_tensor *e = &v->entry;
    if (e->dtype != LINNET_F32 || e->kind > LN_SYNC_SPARSE || !e->rank || !v->row_elements) return LN_SYNC_PLAIN;
    if (e->rows < (ENCODED_FROM + v->row_elements - 1) / v->row_elements) return LN_SYNC_PLAIN;
    return encodings >> (LN_SYNC_PULL_AS + LN_SYNC_F16) & 1    ? LN_SYNC_F16
           : encodings >> (LN_SYNC_PULL_AS + LN_SYNC_BF16) & 1 ? LN_SYNC_BF16
                                                               : LN_SYNC_PLAIN;
}

const ln_sync_variable *ln_sync_manifest_find(const ln_sync_manifest *m, const char *name) {
    for (uint32_t i = 0; i < m->count; i++)
        if (!strcmp(m->variables[i].entry.name, name)) return &m->variables[i];
    return NULL;
}

const ln_sync_variable *ln_sync_manifest_get(const ln_sync_manifest *m, uint32_t number) {
    return number < m->count ? &m->variables[number] : NULL;
}
