/* recompute.c - rematerialization. At the step with the largest memory use, it gives up a value whose next reader comes
 * late, and computes the value again before that reader. It repeats this until the plan fits. The same kernels over the
 * same operands give the same bits. */
#include "plan/graph/buffers.h"
#include "plan/passes/passes.h"

#include <math.h>
#include <string.h>

enum {
    MOST_CLONES = 64,  /* the largest number of nodes that are cloned to compute one value again */
    SMALL = 16,        /* an operand whose size is at most a sixteenth of the value's size is kept to compute it */
    FLOPS_PER_BYTE = 8 /* operations per byte moved on a fast machine; converts the cost of a product into bytes of a
                          pointwise op */
};

/* A buffer at the last measurement. Buffers outside the arena have no size. */
typedef struct held {
    int64_t size;
    int32_t first, last;
    int32_t next; /* first position after the peak that reads it; -1: none */
    double score; /* 0: not a candidate */
} held;

typedef struct recompute {
    ln_work *w;
    int32_t capacity;          /* number of elements of the arrays per value */
    ln_work_node **maker;      /* per value: the node that computes it */
    int32_t *made_at;          /* per value: the position of this node at the last measurement */
    int32_t *home;             /* per value: its buffer in the arena at the last measurement; -1: none */
    int32_t *clone, *original; /* per value: its clone, which is computed later; per clone: the original; -1: none */
    int64_t *trial;            /* per position: bytes in use, in the last trial */
    int64_t most, trial_most;
    int32_t at, trial_at;       /* the first position of the maximum */
    int32_t times, trial_times; /* number of positions with the maximum */
    held *buffers;
    int32_t n_buffers, n_made;
    bool no_memory;
    ln_work_node *made[MOST_CLONES];
} recompute;

/* Finds the buffers of the current graph. Puts the bytes per position, and their maximum, into `trial`. */
static linnet_status measure(recompute *r) {
    int64_t *live = r->trial;
    ln_work *w = r->w;
    const int32_t n = w->nodes.count;
    ln_forget_buffers(w);
    const linnet_status status = ln_find_buffers(w);
    if (status != LINNET_OK) return status;
    memset(live, 0, ((size_t)n + 1) * sizeof *live);
    for (int32_t i = 0; i < w->buffers.count; ++i) {
        const ln_work_buffer *b = ln_buffer_at(w, i);
        if (b->kind != LN_REGION_ARENA || !ln_on_cpu(b->device)) continue;
        const int64_t size = (int64_t)ln_round_up((size_t)b->size, LN_ALIGNMENT);
        live[b->first] += size;
        live[ln_min(b->last, n - 1) + 1] -= size;
    }
    r->trial_most = r->trial_times = 0;
    for (int32_t i = 0; i < n; ++i) {
        if (i > 0) live[i] += live[i - 1];
        if (live[i] > r->trial_most) {
            r->trial_most = live[i];
            r->trial_at = i;
            r->trial_times = 0;
        }
        r->trial_times += live[i] == r->trial_most;
    }
    return status;
}

/* Makes the last measurement the current one. */
static void keep(recompute *r) {
    const ln_work *w = r->w;
    r->most = r->trial_most;
    r->at = r->trial_at;
    r->times = r->trial_times;
    r->n_buffers = w->buffers.count;
    for (int32_t b = 0; b < r->n_buffers; ++b) {
        const ln_work_buffer *from = ln_buffer_at(w, b);
        r->buffers[b] = (held){.first = from->first, .last = from->last, .next = -1};
        if (from->kind == LN_REGION_ARENA && ln_on_cpu(from->device)) r->buffers[b].size = (int64_t)from->size;
    }
    for (int32_t v = 0; v < w->values.count; ++v) {
        const int32_t b = ln_home_of(w, v).buffer;
        r->home[v] = b >= 0 && r->buffers[b].size > 0 ? b : -1;
    }
    for (int32_t i = 0; i < w->nodes.count; ++i)
        for (int32_t o = 0; o < ln_node_at(w, i)->n_outputs; ++o)
            if (ln_node_at(w, i)->outputs[o] >= 0) r->made_at[ln_node_at(w, i)->outputs[o]] = i;
}

static bool can_clone(const ln_work_node *node) {
    return node != NULL && ln_is_kernel(node) && node->bodies[0] == NULL && !ln_is_assign(node) &&
           !(node->op->flags & (LN_OP_DATA_DEPENDENT | LN_OP_VARIES));
}

/* Cost in bytes moved. For products, the root of the product of the three sizes is close to the number of
 * multiplications. */
static double work_of(const ln_work *w, const ln_work_node *node) {
    double bytes = 0, product = node->n_outputs > 0 ? 1 : 0;
    for (int32_t k = 0; k < ln_slots(node) + node->n_outputs; ++k) {
        const int32_t v = k < ln_slots(node) ? node->inputs[k] : node->outputs[k - ln_slots(node)];
        if (v < 0) continue;
        bytes += (double)ln_known_bytes(&ln_value_at(w, v)->tensor);
        if (k < 2 || k >= ln_slots(node)) product *= (double)ln_count(&ln_value_at(w, v)->tensor);
    }
    return (node->op->flags & LN_OP_EPILOGUE) ? bytes + 2 * sqrt(product) / FLOPS_PER_BYTE : bytes;
}

/* Returns the bytes that giving up the value's buffer saves per unit of work. The score is lower if an operand of the
 * value is no longer available, too. */
static double score_of(const recompute *r, int32_t value, int32_t at) {
    const ln_work_node *maker = r->maker[value];
    const held *b = &r->buffers[r->home[value]];
    if (!can_clone(maker)) return 0;
    double work = 1 + work_of(r->w, maker);
    for (int32_t k = 0; k < ln_slots(maker); ++k) {
        const int32_t home = maker->inputs[k] >= 0 ? r->home[maker->inputs[k]] : -1;
        if (home >= 0 && r->buffers[home].last < at && r->buffers[home].size * SMALL > b->size) work *= 4;
    }
    return (double)b->size / work;
}

/* Finds the buffers that nothing uses at the peak and that are kept only for later readers. */
static void find_candidates(recompute *r) {
    const ln_work *w = r->w;
    for (int32_t i = w->nodes.count - 1; i >= r->at; --i) {
        const ln_work_node *node = ln_node_at(w, i);
        for (int32_t k = 0; k < ln_slots(node) + node->n_outputs; ++k) {
            const int32_t v = k < ln_slots(node) ? node->inputs[k] : node->outputs[k - ln_slots(node)];
            if (v < 0 || r->home[v] < 0) continue;
            held *b = &r->buffers[r->home[v]];
            b->next = i == r->at || b->first >= r->at ? -1 : i;
            b->score = b->next >= 0 && k < ln_slots(node) ? score_of(r, v, i) : 0;
        }
    }
}

/* Returns the value to read instead of `value` from position `at` on if `buffer` is given up: the value itself or a
 * clone. -1: there is none. */
static int32_t stand_in(recompute *r, int32_t value, int32_t buffer, int32_t at) {
    ln_work *w = r->w;
    if (r->clone[value] >= 0) return r->clone[value];
    const int32_t home = r->home[value];
    if (home < 0) return value;
    const bool there =
        home != buffer && (r->buffers[home].last >= at || r->buffers[home].size * SMALL <= r->buffers[buffer].size);
    const ln_work_node *maker = r->maker[value];
    if (there) return value;
    if (!can_clone(maker)) return home == buffer ? -1 : value;
    ln_work_node *node =
        ln_work_new_node(w, maker->op, maker->attributes, maker->name, maker->index, ln_slots(maker), maker->n_outputs);
    if ((r->no_memory = node == NULL)) return -1;
    int32_t *inputs = node->inputs, *outputs = node->outputs;
    *node = *maker;
    node->inputs = inputs;
    node->outputs = outputs;
    for (int32_t k = 0; k < ln_slots(node); ++k) {
        inputs[k] = maker->inputs[k] < 0 ? -1 : stand_in(r, maker->inputs[k], buffer, at);
        if (inputs[k] < 0 && maker->inputs[k] >= 0) return -1;
    }
    if (r->n_made == MOST_CLONES || w->values.count + node->n_outputs > r->capacity) return -1;
    for (int32_t o = 0; o < node->n_outputs; ++o) {
        const int32_t from = maker->outputs[o];
        outputs[o] = from;
        if (from < 0) continue;
        if ((outputs[o] = ln_work_twin(w, from)) < 0) return r->no_memory = true, -1;
        r->maker[outputs[o]] = node;
        r->home[outputs[o]] = r->clone[outputs[o]] = -1;
        r->original[outputs[o]] = from;
        r->clone[from] = outputs[o];
    }
    r->made[r->n_made++] = node;
    return r->clone[value];
}

/* Makes room for `count` nodes at position `at` of the order, or removes -count nodes if count is negative. */
static void shift(ln_work *w, int32_t at, int32_t count) {
    ln_work_node **nodes = w->nodes.items;
    if (count > 0) memmove(nodes + at + count, nodes + at, (size_t)(w->nodes.count - at) * sizeof *nodes);
    if (count < 0) memmove(nodes + at, nodes + at - count, (size_t)(w->nodes.count - at + count) * sizeof *nodes);
    w->nodes.count += count;
    if (w->updates.last_failure >= at) w->updates.last_failure += count;
}

/* Gives up the buffer between the peak and its next reader. If that does not help, everything is restored. */
static linnet_status give_up(recompute *r, int32_t buffer, bool *helps) {
    ln_work *w = r->w;
    const int32_t at = r->buffers[buffer].next, first_value = w->values.count, n = w->nodes.count;
    bool possible = true;
    r->n_made = 0;
    *helps = false;
    for (int32_t v = 0; v < first_value; ++v) r->clone[v] = -1;
    for (int32_t i = at; possible && i < n; ++i)
        for (int32_t k = 0; possible && k < ln_slots(ln_node_at(w, i)); ++k) {
            const int32_t v = ln_node_at(w, i)->inputs[k];
            if (v >= 0 && r->home[v] == buffer && r->made_at[v] < at) possible = stand_in(r, v, buffer, at) >= 0;
        }
    if (r->no_memory) return ln_work_no_memory(w);
    linnet_status status = LINNET_OK;
    if (possible) {
        for (int32_t i = 0; i < r->n_made; ++i)
            if ((status = ln_work_append(w, r->made[i])) != LINNET_OK) return status; /* reserves space */
        w->nodes.count = n;
        shift(w, at, r->n_made);
        memcpy((ln_work_node **)w->nodes.items + at, r->made, (size_t)r->n_made * sizeof *r->made);
        for (int32_t i = at + r->n_made; i < w->nodes.count; ++i)
            for (int32_t k = 0; k < ln_slots(ln_node_at(w, i)); ++k) {
                int32_t *v = &ln_node_at(w, i)->inputs[k];
                if (*v >= 0 && *v < first_value && r->clone[*v] >= 0) *v = r->clone[*v];
            }
        if ((status = measure(r)) != LINNET_OK) return status;
        if (r->trial_most < r->most || (r->trial_most == r->most && r->trial_times < r->times)) {
            *helps = true;
            keep(r);
            return status;
        }
        shift(w, at, -r->n_made);
        for (int32_t i = at; i < w->nodes.count; ++i)
            for (int32_t k = 0; k < ln_slots(ln_node_at(w, i)); ++k) {
                int32_t *v = &ln_node_at(w, i)->inputs[k];
                if (*v >= first_value) *v = r->original[*v];
            }
    }
    w->values.count = first_value;
    return status;
}

/* Removes originals that nothing reads any more. */
static linnet_status sweep(ln_work *w) {
    const ln_work_node *failure = w->updates.last_failure >= 0 ? ln_node_at(w, w->updates.last_failure) : NULL;
    const linnet_status status = ln_work_sweep(w);
    w->updates.last_failure = w->nodes.count;
    if (failure == NULL) w->updates.last_failure = -1;
    for (int32_t i = 0; failure != NULL && i < w->nodes.count; ++i)
        if (ln_node_at(w, i) == failure) w->updates.last_failure = i;
    return status;
}

linnet_status ln_pass_recompute(ln_work *w) {
    recompute r = {.w = w};
    const int32_t n = w->nodes.count;
    r.capacity = 3 * w->values.count + MOST_CLONES;
    r.maker = ln_pool_array(&w->pool, r.capacity, sizeof(ln_work_node *));
    r.made_at = ln_pool_array(&w->pool, r.capacity, sizeof *r.made_at);
    r.home = ln_pool_array(&w->pool, r.capacity, sizeof *r.home);
    r.clone = ln_pool_array(&w->pool, r.capacity, sizeof *r.clone);
    r.original = ln_pool_array(&w->pool, r.capacity, sizeof *r.original);
    r.trial = ln_pool_array(&w->pool, (int64_t)n + r.capacity, sizeof *r.trial);
    r.buffers = ln_pool_array(&w->pool, (int64_t)2 * r.capacity, sizeof *r.buffers);
    if (w->pool.failed) return ln_work_no_memory(w);
    for (int32_t i = 0; i < n; ++i)
        for (int32_t o = 0; o < ln_node_at(w, i)->n_outputs; ++o)
            if (ln_node_at(w, i)->outputs[o] >= 0) r.maker[ln_node_at(w, i)->outputs[o]] = ln_node_at(w, i);
    linnet_status status = measure(&r);
    if (status == LINNET_OK) keep(&r);
    for (bool helps = true; status == LINNET_OK && helps && r.most > (int64_t)w->recomputing.target;) {
        find_candidates(&r);
        for (helps = false; status == LINNET_OK && !helps;) {
            int32_t best = 0;
            for (int32_t b = 1; b < r.n_buffers; ++b)
                if (r.buffers[b].score > r.buffers[best].score) best = b;
            if (r.n_buffers == 0 || r.buffers[best].score == 0) break;
            r.buffers[best].score = 0;
            status = give_up(&r, best, &helps);
        }
    }
    ln_forget_buffers(w);
    if (status == LINNET_OK) status = sweep(w);
    w->recomputing.added = w->nodes.count - n;
    return status;
}
