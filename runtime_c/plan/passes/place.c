/* place.c - decides which nodes run on a device. The devices are asked in order of preference. Connected nodes that a
 * device can run form an island, which is sent there if the device's time and the transfers cost less than the CPU. */
#include "kernel/cost.h"
#include "plan/passes/passes.h"

#include <string.h>

typedef struct island {
    int32_t parent;
    bool real; /* it contains more than views */
    double device, cpu;
} island;

typedef struct choice {
    ln_work *w;
    uint8_t place;    /* the device that is asked */
    double *costs;    /* per node: on the device; negative: the node is no candidate */
    int32_t *hinted;  /* per node: the place that a hint names; -1: none */
    int32_t *made;    /* per value: the node that computes it, or -1 */
    int32_t *counted; /* per value: 1 + the last island whose transfers it counts in */
    island *islands;  /* per node */
} choice;

static bool matches(const char *pattern, const char *text) {
    for (; *pattern != '*'; ++pattern, ++text) {
        if (*pattern != *text) return false;
        if (*text == 0) return true;
    }
    while (*pattern == '*') ++pattern;
    for (; *text != 0; ++text)
        if (matches(pattern, text)) return true;
    return *pattern == 0;
}

/* plan.c has checked the names of the devices. */
static int32_t hint_for(const ln_work *w, const ln_work_node *node) {
    for (int32_t h = 0; h < w->n_hints; ++h) {
        if (!matches(w->hints[h].node, node->name)) continue;
        for (int32_t d = 0; d < w->n_devices; ++d)
            if (strcmp(w->devices[d].is.name, w->hints[h].device) == 0) return d + 1;
        return LN_CPU;
    }
    return -1;
}

static uint64_t bytes_of(const ln_work *w, int32_t value) {
    return value >= 0 ? ln_known_bytes(&ln_value_at(w, value)->tensor) : 0;
}

/* Nanoseconds on the CPU, on as many threads as the step would get. */
static linnet_status cpu_cost(ln_work *w, const ln_work_node *node, double *ns) {
    const linnet_status status = ln_node_cost(w, node, LN_LAYOUT_CHANNELS_LAST, ns);
    const int threads = ln_best_threads(w->machine, *ns, w->threads);
    if (status == LINNET_OK && threads > 1) *ns = *ns / threads + (double)w->machine->fork;
    return status;
}

static double transfer_cost(const ln_device *d, uint64_t bytes) {
    const double rate = (double)d->limits.transfer_rate;
    return (double)d->limits.transfer_ns + (rate > 0 ? 1000 * (double)bytes / rate : 0);
}

/* A copy that takes no time on any device: its output is its input's memory. */
static bool is_free(const choice *c, const ln_work_node *node) {
    const ln_work *w = c->w;
    if (!ln_is_family(node, LN_FAMILY_COPY) || node->n_inputs != 1 || node->n_outputs != 1 || node->outputs[0] < 0)
        return false;
    const ln_work_value *x = ln_value_at(w, node->inputs[0]), *y = ln_value_at(w, node->outputs[0]);
    return x->variable < 0 && !y->fetched && !y->exported && ln_count(&x->tensor) == ln_count(&y->tensor) &&
           ln_is_view(w, node);
}

static linnet_status ask(choice *c, const ln_work_node *node, double *cost) {
    const ln_device *d = ln_device_at(c->w, c->place);
    *cost = -1;
    if (ln_is_assign(node) || node->bodies[0] != NULL || (node->op->flags & LN_OP_DATA_DEPENDENT)) return LINNET_OK;
    for (int k = 0; k < node->n_inputs + node->n_outputs; ++k) {
        const int32_t v = k < node->n_inputs ? node->inputs[k] : node->outputs[k - node->n_inputs];
        if (v < 0) continue;
        if (ln_count(&ln_value_at(c->w, v)->tensor) <= 0) return LINNET_OK; /* empty, or the run decides its size */
        const uint64_t room = d->limits.largest_buffer;
        if (room > 0 && bytes_of(c->w, v) + d->limits.padding > room) return LINNET_OK;
    }
    if (is_free(c, node)) {
        *cost = 0;
        return LINNET_OK;
    }
    linnet_step step;
    const linnet_status status = ln_device_step_of(c->w, node, c->place, &c->w->pool, &step);
    if (status == LINNET_OK) *cost = d->is.cost(d->is.context, &step);
    return status;
}

static int32_t root(island *islands, int32_t i) {
    while (islands[i].parent != i) {
        islands[i].parent = islands[islands[i].parent].parent;
        i = islands[i].parent;
    }
    return i;
}

/* The island of a candidate; -1 for other nodes. */
static int32_t island_of(const choice *c, int32_t node) {
    return node >= 0 && c->costs[node] >= 0 ? root(c->islands, node) : -1;
}

/* Counts the transfer of a value into or out of the island once. */
static void count_transfer(choice *c, int32_t value, int32_t home) {
    if (c->counted[value] == home + 1) return;
    c->counted[value] = home + 1;
    c->islands[home].device += transfer_cost(ln_device_at(c->w, c->place), bytes_of(c->w, value));
}

static void count_transfers(choice *c) {
    const ln_work *w = c->w;
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (node->state != LN_NODE_READY) continue;
        const int32_t home = island_of(c, i);
        for (int k = ln_is_assign(node); k < node->n_inputs; ++k) {
            if (node->inputs[k] < 0) continue;
            const ln_work_value *v = ln_value_at(w, node->inputs[k]);
            const int32_t from = island_of(c, c->made[node->inputs[k]]);
            if (from == home || v->host != NULL) continue;
            if (home >= 0 && v->variable < 0) count_transfer(c, node->inputs[k], home);
            if (from >= 0) count_transfer(c, node->inputs[k], from);
        }
        for (int o = 0; home >= 0 && o < node->n_outputs; ++o)
            if (node->outputs[o] >= 0 && ln_value_at(w, node->outputs[o])->fetched)
                count_transfer(c, node->outputs[o], home);
    }
}

/* Asks one device about all nodes of the CPU. */
static linnet_status place_on(choice *c) {
    ln_work *w = c->w;
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        ln_work_node *node = ln_node_at(w, i);
        c->costs[i] = -1;
        if (node->state != LN_NODE_READY || !ln_is_kernel(node)) continue;
        if (c->hinted[i] >= 0 && c->hinted[i] != c->place) continue;
        const linnet_status status = ask(c, node, &c->costs[i]);
        if (status != LINNET_OK) return status;
        c->islands[i] = (island){.parent = i};
    }
    for (int32_t i = 0; i < w->values.count; ++i) c->counted[i] = 0;
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        if (c->costs[i] < 0) continue;
        const ln_work_node *node = ln_node_at(w, i);
        for (int k = 0; k < node->n_inputs; ++k) {
            const int32_t from = node->inputs[k] >= 0 ? island_of(c, c->made[node->inputs[k]]) : -1;
            if (from >= 0) c->islands[from].parent = root(c->islands, i);
        }
    }
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        if (c->costs[i] < 0) continue;
        island *home = &c->islands[root(c->islands, i)];
        const bool view = is_free(c, ln_node_at(w, i));
        home->real |= !view;
        home->device += c->costs[i];
        if (view) continue;
        double ns = 0;
        const linnet_status status = cpu_cost(w, ln_node_at(w, i), &ns);
        if (status != LINNET_OK) return status;
        home->cpu += ns;
    }
    count_transfers(c);
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        ln_work_node *node = ln_node_at(w, i);
        if (node->state != LN_NODE_READY || !ln_is_kernel(node)) continue;
        const bool hinted = c->hinted[i] == c->place;
        if (c->costs[i] < 0) {
            if (node->reason == LN_REASON_NONE)
                node->reason = c->hinted[i] == LN_CPU ? LN_REASON_HINT : LN_REASON_CANNOT;
            continue;
        }
        const island *home = &c->islands[root(c->islands, i)];
        if (!home->real) continue;
        if (!hinted && home->device > home->cpu) {
            node->reason = LN_REASON_COST;
            continue;
        }
        node->device = c->place;
        node->reason = hinted ? LN_REASON_HINT : LN_REASON_CHOSEN;
    }
    return LINNET_OK;
}

linnet_status ln_pass_place(ln_work *w) {
    if (ln_device_count(w->n_devices) == 0) return LINNET_OK;
    const int32_t n = w->nodes.count, n_values = w->values.count;
    choice c = {.w = w};
    c.costs = ln_pool_array(&w->pool, n, sizeof *c.costs);
    c.hinted = ln_pool_array(&w->pool, n, sizeof *c.hinted);
    c.islands = ln_pool_array(&w->pool, n, sizeof *c.islands);
    c.made = ln_find_makers(w);
    c.counted = ln_pool_array(&w->pool, n_values, sizeof *c.counted);
    if (w->pool.failed) return ln_work_no_memory(w);
    for (int32_t i = 0; i < n; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (node->state != LN_NODE_READY) continue;
        c.hinted[i] = hint_for(w, node);
    }
    for (int32_t d = 0; d < w->n_devices; ++d) {
        c.place = (uint8_t)(d + 1);
        const linnet_status status = place_on(&c);
        if (status != LINNET_OK) return status;
    }
    return LINNET_OK;
}
