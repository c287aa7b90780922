/* claims.c - asks devices about consecutive steps: private layouts of the values between the steps, and sequences of
 * steps that a device executes as one. Also plans the memory of devices, which is the buffers that a session allocates
 * there. */
#include "plan/passes/claims.h"

#include "base/layout.h"
#include "plan/graph/planner.h"

#include <string.h>

/* ---- private layouts --------------------------------------------------------------------------------------------- */

/* A device node that is a step; views need none. */
static bool is_step(const ln_work *w, const ln_work_node *node) {
    return node->state == LN_NODE_READY && ln_on_device(node) && !ln_is_view(w, node);
}

/* Checks what the device says of the layout that it proposes: an order of all axes, one of which may have blocks. */
static linnet_status check(ln_work *w, const ln_device *d, const ln_work_value *v) {
    linnet_layout layout = {.block = 0};
    const int rank = v->tensor.rank;
    bool good = d->is.describe != NULL && d->is.describe(d->is.context, v->token, rank, &layout) == 1;
    if (!good && d->is.layout_bytes != NULL) return LINNET_OK;
    unsigned seen = 0;
    uint64_t bytes;
    for (int i = 0; good && i < rank; ++i) {
        good = layout.order[i] >= 0 && layout.order[i] < rank && !(seen >> layout.order[i] & 1);
        if (good) seen |= 1u << layout.order[i];
    }
    good = good && layout.block >= 0 && layout.block_axis >= 0 && layout.block_axis < ln_max(rank, 1);
    if (good && ln_layout_bytes(&layout, &v->tensor, &bytes)) return LINNET_OK;
    ln_fail(w->error, LINNET_DEVICE_FAILED, "device %s failed to describe a layout", d->is.name);
    ln_at_node(w->error, -1, v->name);
    ln_expected(w->error, "an order of the %d axes of the value, and blocks of one axis that fit in memory", rank);
    ln_got(w->error, "the layout of token %u", (unsigned)v->token);
    return ln_hint(w->error, "this is a fault of the device's library");
}

static linnet_status propose(ln_work *w, const ln_work_node *node) {
    const ln_device *d = ln_device_at(w, node->device);
    linnet_step step;
    if (d->is.propose == NULL) return LINNET_OK;
    linnet_status status = ln_device_step_of(w, node, node->device, &w->pool, &step);
    for (int o = 0; status == LINNET_OK && o < node->n_outputs; ++o) {
        ln_work_value *v = node->outputs[o] >= 0 ? ln_value_at(w, node->outputs[o]) : NULL;
        if (v == NULL || v->device != node->device || v->committed) continue;
        v->token = d->is.propose(d->is.context, &step, o);
        if (v->token != 0) status = check(w, d, v);
    }
    return status;
}

/* Makes a value dense unless all of its readers accept its layout. A download accepts every layout. */
static linnet_status accept(ln_work *w, const ln_work_node *node) {
    for (int k = 0; k < node->n_inputs + node->n_extra; ++k) {
        ln_work_value *v = node->inputs[k] >= 0 ? ln_value_at(w, node->inputs[k]) : NULL;
        if (v == NULL || v->token == 0) continue;
        if (node->op == NULL) {
            if (!ln_on_cpu(ln_value_at(w, node->outputs[0])->device)) v->token = 0;
            continue;
        }
        const ln_device *d = ln_device_at(w, v->device);
        linnet_step step;
        const linnet_status status = ln_device_step_of(w, node, node->device, &w->pool, &step);
        if (status != LINNET_OK) return status;
        if (!is_step(w, node) || d->is.accept(d->is.context, &step, k, v->token) != 1) v->token = 0;
    }
    return LINNET_OK;
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

enum { MOST_STEPS = 4096 }; /* steps that are offered to a device at once */

typedef struct run {
    ln_work_node *nodes[MOST_STEPS];
    int32_t positions[MOST_STEPS];
    int32_t n;
} run;

/* Collects the steps of one device from position `at` on. Views and assignments may lie between them. */
static void collect(const ln_work *w, run *r, int32_t at) {
    r->n = 0;
    const uint8_t place = ln_node_at(w, at)->device;
    for (; at < w->nodes.count && r->n < MOST_STEPS; ++at) {
        ln_work_node *node = ln_node_at(w, at);
        if (node->state != LN_NODE_READY || ln_is_assign(node)) continue;
        if (!ln_on_device(node) || node->device != place) return;
        if (!is_step(w, node)) continue;
        r->positions[r->n] = at;
        r->nodes[r->n++] = node;
    }
}

/* Number of steps from `first` on, at most `count`, that have no other nodes between them. */
static int32_t close_steps(const ln_work *w, const run *r, int32_t first, int32_t count) {
    for (int32_t k = first + 1; k < first + count; ++k)
        for (int32_t at = r->positions[k - 1] + 1; at < r->positions[k]; ++at)
            if (ln_node_at(w, at)->state == LN_NODE_READY) return k - first;
    return count;
}

static linnet_status ask(ln_work *w, const ln_device *d, const run *r, int32_t first, const linnet_step *const *steps,
                         linnet_claim *claim) {
    int32_t count = r->n - first;
    for (;;) {
        *claim = (linnet_claim){.struct_size = sizeof *claim, .count = 1};
        const int code = d->is.claim != NULL ? d->is.claim(d->is.context, steps + first, count, claim) : 0;
        if (code != 0) return ln_device_failed(d, code, "claim a step", r->nodes[first]->name, w->error);
        if (claim->count < 1 || claim->count > count) {
            ln_device_failed(d, claim->count, "claim a step", r->nodes[first]->name, w->error);
            ln_expected(w->error, "a count of 1 to %d", count);
            return ln_hint(w->error, "this is a fault of the device's library");
        }
        const int32_t close = claim->fused ? close_steps(w, r, first, claim->count) : claim->count;
        if (close == claim->count) return LINNET_OK;
        count = close; /* a view of a value inside a fused claim would have no memory */
    }
}

static linnet_status claim_run(ln_work *w, const run *r) {
    const ln_device *d = ln_device_at(w, r->nodes[0]->device);
    linnet_step *steps = ln_pool_array(&w->pool, r->n, sizeof *steps);
    const linnet_step **offered = ln_pool_array(&w->pool, r->n, sizeof *offered);
    ln_work_node **nodes = ln_pool_array(&w->pool, r->n, sizeof *nodes);
    if (steps == NULL || offered == NULL || nodes == NULL) return ln_work_no_memory(w);
    linnet_status status = LINNET_OK;
    for (int32_t i = 0; i < r->n && status == LINNET_OK; ++i) {
        nodes[i] = r->nodes[i];
        offered[i] = &steps[i];
        status = ln_device_step_of(w, nodes[i], nodes[i]->device, &w->pool, &steps[i]);
    }
    for (int32_t first = 0; first < r->n && status == LINNET_OK;) {
        ln_work_claim **slot = ln_list_add(w, &w->claims, sizeof *slot);
        ln_work_claim *c = slot != NULL ? ln_pool_alloc(&w->pool, sizeof *c) : NULL;
        if (c == NULL) return ln_work_no_memory(w);
        *slot = c;
        if ((status = ask(w, d, r, first, offered, &c->is)) != LINNET_OK) return status;
        c->nodes = nodes + first;
        c->first = r->positions[first];
        c->last = r->positions[first + c->is.count - 1];
        for (int32_t i = 0; i < c->is.count; ++i) nodes[first + i]->claim = c;
        first += c->is.count;
    }
    return status;
}

linnet_status ln_pass_claims(ln_work *w) {
    linnet_status status = LINNET_OK;
    if (ln_device_count(w->n_devices) == 0) return LINNET_OK;
    for (int32_t i = 0; i < w->nodes.count && status == LINNET_OK; ++i)
        if (is_step(w, ln_node_at(w, i))) status = propose(w, ln_node_at(w, i));
    for (int32_t i = 0; i < w->nodes.count && status == LINNET_OK; ++i)
        if (ln_node_at(w, i)->state == LN_NODE_READY && ln_node_at(w, i)->n_outputs > 0)
            status = accept(w, ln_node_at(w, i));
    run *r = status == LINNET_OK ? ln_pool_alloc(&w->pool, sizeof *r) : NULL;
    if (r == NULL) return status != LINNET_OK ? status : ln_work_no_memory(w);
    for (int32_t i = 0; i < w->nodes.count && status == LINNET_OK; ++i) {
        if (!is_step(w, ln_node_at(w, i)) || ln_node_at(w, i)->claim != NULL) continue;
        collect(w, r, i);
        status = claim_run(w, r);
    }
    return status;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

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
    if (sums == NULL || part == NULL || from == NULL) return ln_work_no_memory(w);
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

/* Places bytes that stay for the whole session: in the last buffer if there is room, else in a new one. */
static void place_resident(ln_device_memory *m, uint64_t room, uint64_t align, uint64_t bytes, int32_t *chunk,
                           uint64_t *offset) {
    bytes = ln_round_up((size_t)bytes, (size_t)align);
    if (m->n_chunks == m->first_resident || (room > 0 && m->chunks[m->n_chunks - 1] + bytes > room))
        m->chunks[m->n_chunks++] = 0;
    *chunk = m->n_chunks - 1;
    *offset = m->chunks[*chunk];
    m->chunks[*chunk] += bytes;
}

static linnet_status place_residents(ln_work *w, ln_program *program, uint8_t place, uint64_t room) {
    ln_device_memory *m = &program->devices[place];
    const uint64_t align = ln_device_at(w, place)->limits.alignment;
    int32_t n = 0;
    for (int32_t i = 0; i < w->buffers.count; ++i)
        n += ln_buffer_at(w, i)->kind == LN_REGION_RESIDENT && ln_buffer_at(w, i)->device == place;
    m->residents = ln_pool_array(&program->pool, n, sizeof *m->residents);
    if (m->residents == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < w->values.count; ++i) {
        const ln_work_value *v = ln_value_at(w, i);
        if (v->device != place || v->buffer < 0) continue;
        ln_work_buffer *b = ln_buffer_at(w, v->buffer);
        if (b->kind != LN_REGION_RESIDENT || (v->host == NULL && v->variable < 0)) continue;
        place_resident(m, room, align, b->size, &b->chunk, &b->offset);
        *(v->host != NULL ? &m->constants : &m->variables) += ln_round_up((size_t)b->size, (size_t)align);
        m->residents[m->n_residents++] = (ln_resident){.host = v->host,
                                                       .variable = v->variable,
                                                       .chunk = b->chunk,
                                                       .offset = b->offset,
                                                       .tensor = v->tensor,
                                                       .name = v->name};
    }
    for (int32_t i = 0; i < w->claims.count; ++i) {
        ln_work_claim *c = ((ln_work_claim **)w->claims.items)[i];
        if (c->nodes[0]->device != place || c->is.packed_bytes == 0) continue;
        place_resident(m, room, align, c->is.packed_bytes, &c->packed_chunk, &c->packed_offset);
        m->packed += ln_round_up((size_t)c->is.packed_bytes, (size_t)align);
    }
    return LINNET_OK;
}

linnet_status ln_place_on_device(ln_work *w, ln_program *program, uint8_t place) {
    ln_device_memory *m = &program->devices[place];
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
    for (int32_t i = 0; i < w->claims.count; ++i) {
        const ln_work_claim *c = ((ln_work_claim **)w->claims.items)[i];
        if (c->nodes[0]->device != place) continue;
        ++m->steps;
        m->nodes += c->is.count;
        m->scratch = ln_max((int64_t)m->scratch, (int64_t)ln_round_up((size_t)c->is.scratch_bytes, (size_t)align));
    }
    /* the arenas, the scratch, and at most one buffer per resident or packed block */
    m->chunks = ln_pool_array(&w->pool, (int64_t)a.n + 2 + w->values.count + w->claims.count, sizeof *m->chunks);
    if (a.lifetimes == NULL || a.buffers == NULL || a.group == NULL || m->chunks == NULL) return ln_work_no_memory(w);
    uint64_t most = UINT64_MAX;
    for (int32_t count = 1; a.n > 0 && (count == 1 || (room > 0 && most > room)); ++count) {
        if (count > a.n) { /* cost() has seen each operand alone, but a private layout may be larger */
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
    m->first_resident = m->n_chunks;
    const linnet_status status = place_residents(w, program, place, room);
    if (status != LINNET_OK) return status;
    uint64_t *chunks = ln_pool_array(&program->pool, m->n_chunks, sizeof *chunks);
    if (chunks == NULL) return ln_work_no_memory(w);
    if (m->n_chunks > 0) memcpy(chunks, m->chunks, (size_t)m->n_chunks * sizeof *chunks);
    m->chunks = chunks;
    m->first_chunk = program->n_chunks;
    program->n_chunks += m->n_chunks;
    m->resident_number = program->n_residents;
    program->n_residents += m->n_residents;
    for (int32_t i = 0; i < m->n_chunks; ++i) program->device_bytes += m->chunks[i];
    return status;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* The names of all steps of the claim but the first, separated by "+". */
static const char *join_names(ln_program *program, const ln_work_claim *c) {
    size_t length = 1;
    for (int32_t i = 1; i < c->is.count; ++i) length += strlen(c->nodes[i]->name) + 1;
    char *text = ln_pool_alloc(&program->pool, length), *to = text;
    for (int32_t i = 1; text != NULL && i < c->is.count; ++i) {
        if (i > 1) *to++ = '+';
        const size_t n = strlen(c->nodes[i]->name);
        memcpy(to, c->nodes[i]->name, n);
        to += n;
    }
    return text;
}

linnet_status ln_lower_claim(ln_work *w, ln_program *program, const ln_work_claim *from, ln_step *step) {
    const uint8_t place = from->nodes[0]->device;
    ln_claim *c = ln_pool_alloc(&program->pool, sizeof *c);
    const int32_t n = from->is.count;
    if (c == NULL) return ln_work_no_memory(w);
    c->n = n;
    c->number = program->n_claims++;
    c->first_member = program->n_members;
    c->first_span = program->n_spans;
    c->scratch_bytes = from->is.scratch_bytes;
    c->packed_bytes = from->is.packed_bytes;
    c->packed_chunk = from->packed_chunk;
    c->packed_offset = from->packed_offset;
    c->steps = ln_pool_array(&program->pool, n, sizeof *c->steps);
    c->operands = ln_pool_array(&program->pool, n, sizeof *c->operands);
    if (c->steps == NULL || c->operands == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < n; ++i) {
        const ln_work_node *node = from->nodes[i];
        const linnet_status status = ln_device_step_of(w, node, place, &program->pool, &c->steps[i]);
        if (status != LINNET_OK) return status;
        const int n_in = node->n_inputs + node->n_extra, count = n_in + node->n_outputs;
        c->operands[i] = ln_pool_array(&program->pool, count, sizeof **c->operands);
        if (c->operands[i] == NULL) return ln_work_no_memory(w);
        for (int k = 0; k < count; ++k) {
            const int32_t value = k < n_in ? node->inputs[k] : node->outputs[k - n_in];
            const bool packed = from->is.packs && value >= 0 && ln_value_at(w, value)->host != NULL;
            c->operands[i][k] = ln_lower_operand(w, packed ? -1 : value); /* another step may read it unpacked */
        }
        program->n_spans += count;
        for (int k = 0; i > 0 && k < count; ++k) step->bytes += c->steps[i].values[k].bytes;
        if (node->reason != LN_REASON_NONE) step->reason = node->reason;
    }
    program->n_members += n;
    step->kind = LN_STEP_DEVICE;
    step->device = place;
    step->claim = c;
    c->kernel = from->is.kernel != NULL ? from->is.kernel : "device";
    if (n > 1) step->fused = join_names(program, from);
    return step->fused != NULL ? LINNET_OK : ln_work_no_memory(w);
}

linnet_status ln_lower_moves(ln_work *w, ln_program *program) {
    const ln_work_move *moves = w->moves.items;
    program->moves = ln_pool_array(&program->pool, w->moves.count, sizeof *program->moves);
    if (program->moves == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < w->moves.count; ++i) {
        const ln_operand to = ln_lower_operand(w, moves[i].resident), from = ln_lower_operand(w, moves[i].value);
        uint64_t bytes;
        if (to.region != LN_REGION_RESIDENT || from.region == LN_REGION_NONE ||
            !ln_bytes(&ln_value_at(w, moves[i].value)->tensor, &bytes))
            continue;
        const ln_device_memory *m = &program->devices[to.device];
        int32_t at = 0;
        while (m->residents[at].chunk != to.index || m->residents[at].offset != to.offset) ++at;
        program->moves[program->n_moves++] = (ln_move){.resident = at, .from = from, .bytes = bytes};
    }
    return LINNET_OK;
}
