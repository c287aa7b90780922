/* offsets.c - sets the offsets of the host's buffers. In the arena, the planner assigns them from the buffers'
 * lifetimes; all other buffers follow one after another. */
#include "plan/graph/planner.h"
#include "plan/passes/passes.h"

enum { NEVER = INT32_MAX };

/* Returns the largest total size of the operands of updates that are in the arena at once. */
static uint64_t gradient_bytes(const ln_work *w) {
    uint64_t most = 0;
    for (int32_t i = 0; i < w->buffers.count; ++i) {
        uint64_t sum = 0;
        for (int32_t k = 0; ln_buffer_at(w, i)->gradient && k < w->buffers.count; ++k) {
            const ln_work_buffer *b = ln_buffer_at(w, k);
            if (b->gradient && b->first <= ln_buffer_at(w, i)->first && b->last >= ln_buffer_at(w, i)->first)
                sum += ln_round_up(b->size, LN_ALIGNMENT);
        }
        if (sum > most) most = sum;
    }
    return most;
}

/* The buffers of the arena, which the planner gives offsets. */
typedef struct arena {
    ln_lifetime *lifetimes;
    int32_t *owner; /* per lifetime: its buffer; -b: the part of the arena that belongs to branch b */
    int count;
} arena;

static void add(arena *a, int32_t owner, uint64_t size, int32_t first, int32_t last) {
    a->owner[a->count] = owner;
    a->lifetimes[a->count++] = (ln_lifetime){.size = size, .first = first, .last = last};
}

/* The branches of a fork run at the same time. Each branch gets a part of the arena, and the buffers that only this
 * branch uses are placed in this part, as if it were an arena. */
static linnet_status add_branches(ln_work *w, arena *a) {
    const int32_t n = w->buffers.count;
    arena part = {.lifetimes = ln_pool_array(&w->pool, n, sizeof *part.lifetimes),
                  .owner = ln_pool_array(&w->pool, n, sizeof *part.owner)};
    int32_t *next = ln_pool_array(&w->pool, n, sizeof *next); /* per buffer: the next one of its branch */
    int32_t *heads = ln_pool_array(&w->pool, (int64_t)w->parallel.n_branches + 1, sizeof *heads);
    if (w->pool.failed) return ln_work_no_memory(w);
    for (int32_t b = 0; b <= w->parallel.n_branches; ++b) heads[b] = -1;
    for (int32_t i = n; i-- > 0;) {
        next[i] = heads[ln_buffer_at(w, i)->branch];
        heads[ln_buffer_at(w, i)->branch] = i;
    }
    for (int32_t b = 1; b <= w->parallel.n_branches; ++b) {
        if (heads[b] < 0) continue;
        const ln_work_fork *fork = ln_fork_at(w, ln_node_at(w, ln_buffer_at(w, heads[b])->first)->fork);
        ln_memory_plan plan;
        part.count = 0;
        for (int32_t i = heads[b]; i >= 0; i = next[i])
            add(&part, i, ln_buffer_at(w, i)->size, ln_buffer_at(w, i)->first, ln_buffer_at(w, i)->last);
        const linnet_status status = ln_plan_memory(w->memory, part.lifetimes, part.count, &plan, w->error);
        if (status != LINNET_OK) return status;
        for (int i = 0; i < part.count; ++i) ln_buffer_at(w, part.owner[i])->offset = part.lifetimes[i].offset;
        w->result.needs->naive += plan.naive - plan.reached; /* the part is counted below, with `reached` bytes */
        add(a, -b, plan.reached, fork->first, fork->end - 1);
    }
    return LINNET_OK;
}

/* Sets the offsets of all buffers. The planner assigns those in the arena; all others follow one after another. */
linnet_status ln_pass_offsets(ln_work *w) {
    ln_needs *m = w->result.needs;
    const int32_t n = w->buffers.count;
    arena a = {.lifetimes = ln_pool_array(&w->pool, (int64_t)n + w->parallel.n_branches, sizeof *a.lifetimes),
               .owner = ln_pool_array(&w->pool, (int64_t)n + w->parallel.n_branches, sizeof *a.owner)};
    uint64_t *parts = ln_pool_array(&w->pool, (int64_t)w->parallel.n_branches + 1, sizeof *parts);
    if (w->pool.failed) return ln_work_no_memory(w);
    for (int32_t i = 0; i < n; ++i) {
        ln_work_buffer *b = ln_buffer_at(w, i);
        if (!ln_on_cpu(b->device)) continue;
        if (b->kind == LN_REGION_IO) {
            b->offset = m->io;
            m->io += ln_round_up(b->size, LN_ALIGNMENT);
        } else if (b->kind == LN_REGION_GROWN) {
            b->offset = (uint64_t)m->n_grown++;
        } else if (b->kind == LN_REGION_ARENA && b->branch == 0) {
            add(&a, i, b->size, b->first, b->last == NEVER ? w->nodes.count : b->last);
        }
    }
    ln_memory_plan plan;
    linnet_status status = w->parallel.n_branches > 0 ? add_branches(w, &a) : LINNET_OK;
    if (status == LINNET_OK) status = ln_plan_memory(w->memory, a.lifetimes, a.count, &plan, w->error);
    if (status != LINNET_OK) return status;
    for (int i = 0; i < a.count; ++i)
        *(a.owner[i] < 0 ? &parts[-a.owner[i]] : &ln_buffer_at(w, a.owner[i])->offset) = a.lifetimes[i].offset;
    for (int32_t i = 0; i < n; ++i) ln_buffer_at(w, i)->offset += parts[ln_buffer_at(w, i)->branch];
    m->arena = plan.reached;
    m->lower_bound = plan.lower_bound;
    m->naive += plan.naive;
    m->gradients = gradient_bytes(w);
    return status;
}
