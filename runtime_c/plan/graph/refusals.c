/* refusals.c - see refusals.h. Each build asks devices about all of their steps before it ends, so one more build is
 * enough unless a device refuses again what the first refusal has changed. */
#include "plan/graph/refusals.h"

#include <string.h>

enum { MOST_BUILDS = 8, ALL_NODES = -1 };

void ln_refusals_init(ln_refusals *r, const linnet_allocator *allocator) {
    *r = (ln_refusals){.count = 0};
    ln_memory_init(&r->memory, allocator);
}

void ln_refusals_free(ln_refusals *r) {
    if (r->items != NULL) ln_memory_free(&r->memory, r->items, (size_t)r->capacity * sizeof *r->items);
}

bool ln_build_again(ln_refusals *r) {
    const bool again = r->again;
    r->builds += again;
    r->again = false;
    r->graphs = 0;
    return again;
}

bool ln_is_refused(const ln_work *w, const ln_work_node *node, uint8_t place) {
    const ln_refusals *r = w->refusals;
    for (int32_t i = 0; i < r->count; ++i)
        if (r->items[i].place == place &&
            (r->items[i].number == ALL_NODES || (r->items[i].graph == w->graph && r->items[i].number == node->number)))
            return true;
    return false;
}

linnet_status ln_refuse(ln_work *w, const ln_work_node *node, uint8_t place) {
    ln_refusals *r = w->refusals;
    if (r->count == r->capacity) {
        const int32_t capacity = r->capacity > 0 ? 2 * r->capacity : 16;
        ln_refusal *items = ln_memory_alloc(&r->memory, (size_t)capacity * sizeof *items);
        r->again = false;
        if (items == NULL) return ln_work_no_memory(w);
        if (r->count > 0) memcpy(items, r->items, (size_t)r->count * sizeof *items);
        ln_refusals_free(r);
        r->items = items;
        r->capacity = capacity;
    }
    r->items[r->count++] =
        (ln_refusal){.graph = w->graph, .number = r->builds < MOST_BUILDS ? node->number : ALL_NODES, .place = place};
    r->again = true;
    return LINNET_OK;
}

linnet_status ln_end_if_refused(const ln_work *w) { return w->refusals->again ? LINNET_CANCELLED : LINNET_OK; }
