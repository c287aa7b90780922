/* server_memory.c - memory that counts towards max_bytes: the buffers of pushes, sums and records. Connections wait
 * (server_peers.c) until there is room. */
#include "sync/server/server_memory.h"

#include "sync/server/server_state.h"

#include <stdlib.h>

bool ln_sync_fits(const ln_sync_server *s, uint64_t bytes) {
    return s->used <= s->config.max_bytes && bytes <= s->config.max_bytes - s->used;
}

void ln_sync_empty(ln_sync_server *s, sync_buffer *buffer) {
    free(buffer->data);
    s->used -= buffer->capacity;
    buffer->data = NULL;
    buffer->capacity = 0;
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

void ln_sync_trim(ln_sync_server *s) {
    for (uint32_t i = 0; i < s->member_count; i++)
        for (uint32_t t = 0; s->members[i]->pushes && t < s->manifest->count; t++) {
            sync_push *p = &s->members[i]->pushes[t];
            if (p->flying || s->members[i]->committed) continue;
            if (!p->begun) ln_sync_empty(s, &p->values);
            if (!p->begun) ln_sync_empty(s, &p->coded);
            if (!p->ids_begun) ln_sync_empty(s, &p->ids);
        }
}
