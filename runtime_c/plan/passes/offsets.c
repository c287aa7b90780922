/* offsets.c - where the buffers of the host are: the planner assigns those in the arena from their lifetimes, and the
 * others follow one after another. */
#include "plan/graph/planner.h"
#include "plan/passes/passes.h"

enum { NEVER = INT32_MAX };

/* The largest total size of the operands of updates that are in the arena at once. */
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

/* Sets the offsets of all buffers. The planner assigns those in the arena; all others follow one after another. */
linnet_status ln_pass_offsets(ln_work *w) {
    ln_needs *m = w->needs;
    const int32_t n = w->buffers.count;
    ln_lifetime *lifetimes = ln_pool_array(&w->pool, n, sizeof *lifetimes);
    int32_t *owner = ln_pool_array(&w->pool, n, sizeof *owner);
    if (w->pool.failed) return ln_work_no_memory(w);
    int count = 0;
    for (int32_t i = 0; i < n; ++i) {
        ln_work_buffer *b = ln_buffer_at(w, i);
        if (!ln_on_cpu(b->device)) continue;
        if (b->kind == LN_REGION_IO) {
            b->offset = m->io;
            m->io += ln_round_up(b->size, LN_ALIGNMENT);
        } else if (b->kind == LN_REGION_GROWN) {
            b->offset = (uint64_t)m->n_grown++;
        } else if (b->kind == LN_REGION_ARENA) {
            const int32_t last = b->last == NEVER ? w->nodes.count : b->last;
            lifetimes[count] = (ln_lifetime){.size = b->size, .first = b->first, .last = last};
            owner[count++] = i;
        }
    }
    ln_memory_plan plan;
    const linnet_status status = ln_plan_memory(w->memory, lifetimes, count, &plan, w->error);
    if (status != LINNET_OK) return status;
    for (int i = 0; i < count; ++i) ln_buffer_at(w, owner[i])->offset = lifetimes[i].offset;
    m->arena = plan.reached;
    m->lower_bound = plan.lower_bound;
    m->naive = plan.naive;
    m->gradients = gradient_bytes(w);
    return status;
}
