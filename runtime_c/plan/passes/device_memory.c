/* device_memory.c - plans the allocations that a session makes on devices: arenas, scratch, and the memory of constants
 * and variables, which stay from run to run. */
#include "plan/passes/device_memory.h"

#include "base/digest.h"
#include "plan/graph/planner.h"
#include "plan/passes/passes.h"

#include <string.h>

typedef struct arenas {
    ln_lifetime *lifetimes;
    ln_work_buffer **buffers;
    int32_t *group; /* per buffer: its arena */
    int32_t n;
} arenas;

/* Plans the buffers as `count` arenas: each buffer, the largest first, goes to the arena with the fewest bytes. Returns
 * the size of the largest arena in *most. */
static linnet_status plan_arenas(ln_work *w, arenas *a, int32_t count, uint64_t *sizes, uint64_t *most) {
    linnet_status status = LINNET_OK;
    uint64_t *sums = ln_pool_array(&w->pool, count, sizeof *sums);
    ln_lifetime *part = ln_pool_array(&w->pool, a->n, sizeof *part);
    int32_t *from = ln_pool_array(&w->pool, a->n, sizeof *from);
    if (w->pool.failed) return ln_work_no_memory(w);
    for (int32_t i = 0; i < a->n; ++i) a->group[i] = count == 1 ? 0 : -1;
    for (int32_t done = 0; count > 1 && done < a->n; ++done) {
        int32_t largest = -1, least = 0;
        for (int32_t i = 0; i < a->n; ++i)
            if (a->group[i] < 0 && (largest < 0 || a->lifetimes[i].size > a->lifetimes[largest].size)) largest = i;
        for (int32_t g = 1; g < count; ++g)
            if (sums[g] < sums[least]) least = g;
        a->group[largest] = least;
        sums[least] += a->lifetimes[largest].size;
    }
    *most = 0;
    for (int32_t g = 0; g < count && status == LINNET_OK; ++g) {
        int32_t n = 0;
        for (int32_t i = 0; i < a->n; ++i) {
            if (a->group[i] != g) continue;
            part[n] = a->lifetimes[i];
            from[n++] = i;
        }
        ln_memory_plan plan;
        status = ln_plan_memory(w->memory, part, n, &plan, w->error);
        if (status != LINNET_OK) return status;
        for (int32_t i = 0; i < n; ++i) a->lifetimes[from[i]].offset = part[i].offset;
        sizes[g] = plan.reached;
        if (plan.reached > *most) *most = plan.reached;
    }
    return status;
}

/* Reserves bytes that stay for the whole session: in the last allocation if there is room, else in a new one. */
static void add_resident(ln_device_memory *m, int32_t first, uint64_t room, uint64_t bytes, int32_t *chunk,
                         uint64_t *offset) {
    if (m->n_chunks == first || (room > 0 && m->chunks[m->n_chunks - 1] + bytes > room)) m->chunks[m->n_chunks++] = 0;
    *chunk = m->n_chunks - 1;
    *offset = m->chunks[*chunk];
    m->chunks[*chunk] += bytes;
}

ln_device_weight *ln_same_constant(ln_device_weight *first, const ln_device_weight *constant) {
    while (first != NULL && memcmp(first->key, constant->key, sizeof first->key) != 0) first = first->next;
    return first;
}

/* Sets the key of a constant. Data of the file is compared by its address, folded data by its content. */
static void set_key(const linnet_model *model, ln_device_weight *r, uint64_t size) {
    r->key[2] = ln_known_bytes(&r->tensor);
    r->key[3] = size;
    if ((uintptr_t)r->host - (uintptr_t)model->file < model->file_size)
        r->key[0] = (uintptr_t)r->host;
    else
        ln_digest(r->host, (size_t)r->key[2], r->key);
}

/* Adds the constants (or the copies of variables) that steps of the device read. Each constant has an allocation of its
 * own, because sessions share constants one by one. */
static void add_values(ln_work *w, uint8_t place, int32_t first, bool constants) {
    ln_device_memory *m = &w->result.needs->devices[place];
    const ln_device *d = ln_device_at(w, place);
    for (int32_t i = 0; i < w->values.count; ++i) {
        const ln_work_value *v = ln_value_at(w, i);
        const int32_t buffer = ln_home_of(w, i).buffer;
        if (v->device != place || buffer < 0) continue;
        ln_work_buffer *b = ln_buffer_at(w, buffer);
        if (b->kind != LN_REGION_WEIGHTS || (v->host != NULL) != constants || (!constants && v->variable < 0)) continue;
        const uint64_t size = ln_round_up((size_t)ln_max((int64_t)b->size, 1), (size_t)d->limits.alignment);
        ln_device_weight *r = &m->weights[m->n_weights];
        *r = (ln_device_weight){.host = v->host, .variable = v->variable, .tensor = v->tensor, .name = v->name};
        if (constants) {
            b->offset = ln_in_file(d, v->host, ln_known_bytes(&v->tensor));
            b->chunk = LN_CHUNK_FILE;
            if (b->offset != UINT64_MAX) continue;
            set_key(w->model, r, size);
            const ln_device_weight *same = ln_same_constant(m->distinct, r);
            b->offset = 0;
            b->chunk = same != NULL ? same->chunk : m->n_chunks;
            if (same != NULL) continue;
            m->chunks[m->n_chunks++] = size;
            r->next = m->distinct;
            m->distinct = r;
        } else {
            add_resident(m, first, d->limits.largest_buffer, size, &b->chunk, &b->offset);
        }
        *(constants ? &m->constants : &m->variables) += size;
        r->chunk = b->chunk;
        r->offset = b->offset;
        ++m->n_weights;
    }
}

static linnet_status find_residents(ln_work *w, uint8_t place) {
    ln_device_memory *m = &w->result.needs->devices[place];
    const ln_device *d = ln_device_at(w, place);
    const int32_t first = m->n_chunks;
    int32_t n = 0;
    for (int32_t i = 0; i < w->buffers.count; ++i)
        n += ln_buffer_at(w, i)->kind == LN_REGION_WEIGHTS && ln_buffer_at(w, i)->device == place;
    m->weights = ln_pool_array(w->result.pool, n, sizeof *m->weights);
    if (m->weights == NULL) return ln_work_no_memory(w);
    add_values(w, place, first, false);
    for (int32_t i = 0; i < w->offload.claims.count; ++i) {
        ln_work_claim *c = ((ln_work_claim **)w->offload.claims.items)[i];
        if (c->nodes[0]->device != place || c->is.packed_bytes == 0) continue;
        const uint64_t size = ln_round_up((size_t)c->is.packed_bytes, (size_t)d->limits.alignment);
        add_resident(m, first, d->limits.largest_buffer, size, &c->packed_chunk, &c->packed_offset);
        m->packed += size;
    }
    m->first_constant = m->n_weights;
    add_values(w, place, first, true);
    return LINNET_OK;
}

static linnet_status plan_device(ln_work *w, uint8_t place) {
    ln_device_memory *m = &w->result.needs->devices[place];
    const ln_device *d = ln_device_at(w, place);
    const uint64_t align = d->limits.alignment, room = d->limits.largest_buffer;
    const int32_t n = w->buffers.count;
    arenas a = {.lifetimes = ln_pool_array(&w->pool, n, sizeof *a.lifetimes)};
    a.buffers = ln_pool_array(&w->pool, n, sizeof *a.buffers);
    a.group = ln_pool_array(&w->pool, n, sizeof *a.group);
    for (int32_t i = 0; i < n && a.lifetimes != NULL && a.buffers != NULL; ++i) {
        ln_work_buffer *b = ln_buffer_at(w, i);
        if (b->device != place || b->kind != LN_REGION_ARENA) continue;
        a.lifetimes[a.n] = (ln_lifetime){.size = ln_round_up((size_t)b->size, (size_t)align),
                                         .first = b->first,
                                         .last = b->last == INT32_MAX ? w->nodes.count : b->last};
        a.buffers[a.n++] = b;
    }
    for (int32_t i = 0; i < w->offload.claims.count; ++i) {
        const ln_work_claim *c = ((ln_work_claim **)w->offload.claims.items)[i];
        if (c->nodes[0]->device != place) continue;
        ++m->steps;
        m->nodes += c->is.count;
        m->own += c->is.own_bytes;
        m->scratch = ln_max((int64_t)m->scratch, (int64_t)ln_round_up((size_t)c->is.scratch_bytes, (size_t)align));
    }
    /* The allocations: the arenas, the scratch, and at most one for each weight or packed block. */
    m->chunks =
        ln_pool_array(&w->pool, (int64_t)a.n + 2 + w->values.count + w->offload.claims.count, sizeof *m->chunks);
    if (w->pool.failed) return ln_work_no_memory(w);
    uint64_t most = UINT64_MAX;
    for (int32_t count = 1; a.n > 0 && (count == 1 || (room > 0 && most > room)); ++count) {
        if (count > a.n) { /* ln_pass_places has compared the size of each operand with the limit, but a private layout
                              may be larger */
            ln_fail(w->error, LINNET_TOO_LARGE, "a value is larger than the largest buffer of device %s", d->is.name);
            return ln_expected(w->error, "%llu bytes", (unsigned long long)room);
        }
        const linnet_status status = plan_arenas(w, &a, count, m->chunks, &most);
        if (status != LINNET_OK) return status;
        m->n_chunks = count;
    }
    for (int32_t i = 0; i < a.n; ++i) {
        a.buffers[i]->chunk = a.group[i];
        a.buffers[i]->offset = a.lifetimes[i].offset;
    }
    for (int32_t i = 0; i < m->n_chunks; ++i) m->activations += m->chunks[i];
    m->scratch_chunk = m->scratch > 0 ? m->n_chunks : -1;
    if (m->scratch > 0) m->chunks[m->n_chunks++] = m->scratch;
    m->device = d->origin;
    const linnet_status status = find_residents(w, place);
    if (status != LINNET_OK) return status;
    uint64_t *chunks = ln_pool_array(w->result.pool, m->n_chunks, sizeof *chunks);
    if (chunks == NULL) return ln_work_no_memory(w);
    if (m->n_chunks > 0) memcpy(chunks, m->chunks, (size_t)m->n_chunks * sizeof *chunks);
    m->chunks = chunks;
    m->first_chunk = w->result.needs->n_chunks;
    w->result.needs->n_chunks += m->n_chunks;
    m->first_weight = w->result.needs->n_weights;
    w->result.needs->n_weights += m->n_weights;
    for (int32_t i = 0; i < m->n_chunks; ++i) w->result.needs->device_bytes += m->chunks[i];
    return status;
}

linnet_status ln_pass_device_memory(ln_work *w) {
    linnet_status status = LINNET_OK;
    for (uint8_t d = 1; d <= ln_device_count(w->settings.n_devices) && status == LINNET_OK; ++d)
        status = plan_device(w, d);
    return status;
}
