/* places.c - decides which nodes run on a device. The devices are asked in order of preference. Connected nodes that a
 * device can run form an island. The island moves to the device if the time on the device, the transfers and the
 * conversions at the border together are less than the time on the CPU. */
#include "kernel/cost.h"
#include "plan/graph/body_nodes.h"
#include "plan/graph/call.h"
#include "plan/graph/device_nodes.h"
#include "plan/graph/epilogue.h"
#include "plan/graph/layouts.h"
#include "plan/graph/refusals.h"
#include "plan/graph/scopes.h"
#include "plan/graph/sets.h"
#include "plan/graph/views.h"
#include "plan/passes/passes.h"

#include <string.h>

typedef struct island {
    int32_t parent;
    bool real; /* it contains a node that is not a view */
    double device, cpu;
} island;

typedef struct choice {
    ln_work *w;
    uint8_t place; /* the device that is asked */
    double *costs; /* per node: its cost on the device; negative: the device cannot run it, so it is no candidate */
    /* Per map: a node for the map and its op together, if the device runs them as one; else NULL. */
    ln_work_node **fused;
    bool *taken;        /* per node: it is the op in a node of `fused` */
    ln_places *allowed; /* per node: the places that a hint or a scope permits */
    bool *hinted;       /* per node: a hint permits them */
    bool *stays;        /* per node: it takes no time, or is no kernel, so its scope is met here too */
    int32_t *made;      /* per value: the node that computes it, or -1 */
    int32_t *counted;   /* per value: 1 + the last island whose transfers it counts in */
    int32_t *checked;   /* per value: 1 + the last island whose conversions it counts in */
    bool *last;         /* per value: the CPU would keep it channels-last */
    bool *wide;         /* per node: the CPU would compute it in f32 between casts */
    uint8_t *reads;     /* per value: how its readers would read it on the CPU */
    uint8_t *outer;     /* per value: the same, but only for readers that are no candidates */
    island *islands;    /* per node, with the number of another node of its island (sets.h) */
} choice;

/* How nodes read a value, one bit for each way: in a layout, in f32, or by a map. */
enum { AS_DENSE = 1 << LN_PREFER_DENSE, AS_LAST = 1 << LN_PREFER_CHANNELS_LAST, AS_F32 = 1 << 4, BY_MAP = 1 << 5 };

static uint64_t bytes_of(const ln_work *w, int32_t value) { return ln_known_bytes(&ln_value_at(w, value)->tensor); }

/* Tells whether the node is a copy that takes no time, because its result is part of its operand's memory. */
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
    if (ln_is_assign(node) || (node->op->flags & LN_OP_DATA_DEPENDENT)) return LINNET_OK;
    if (node->bodies[0] != NULL && (!d->limits.bodies || !ln_body_is_whole(c->w, node))) return LINNET_OK;
    for (int k = 0; k < node->n_inputs + node->n_outputs; ++k) {
        const int32_t v = k < node->n_inputs ? node->inputs[k] : node->outputs[k - node->n_inputs];
        if (v < 0) continue;
        if (ln_count(&ln_value_at(c->w, v)->tensor) <= 0) return LINNET_OK; /* empty, or the run decides its size */
        const uint64_t room = d->limits.largest_buffer;
        if (room > 0 && bytes_of(c->w, v) + d->limits.padding > room) return LINNET_OK;
    }
    linnet_step step;
    const linnet_status status = ln_device_step_of(c->w, node, c->place, &c->w->pool, &step);
    if (status != LINNET_OK) return status;
    const double told = d->is.cost(d->is.context, &step);
    if (told >= 0) *cost = told; /* false for NaN: a device that gives no time cannot run the node */
    if (is_free(c, node)) *cost = 0;
    return LINNET_OK;
}

static int32_t root(island *islands, int32_t i) { return ln_root(islands, sizeof *islands, i); }

/* Returns the island of a candidate; -1 for other nodes. */
static int32_t island_of(const choice *c, int32_t node) {
    return node >= 0 && c->costs[node] >= 0 ? root(c->islands, node) : -1;
}

/* Counts the transfer of a value into or out of the island once. */
static void count_transfer(choice *c, int32_t value, int32_t home) {
    if (c->counted[value] == home + 1) return;
    c->counted[value] = home + 1;
    c->islands[home].device += ln_transfer_ns(ln_device_at(c->w, c->place), bytes_of(c->w, value));
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

/* ---- conversions at the border ----------------------------------------------------------------------------------- */

/* Finds how values would be kept and read if all nodes that are not yet on a device ran on the CPU. */
static linnet_status note_readers(choice *c) {
    ln_work *w = c->w;
    linnet_status status = w->settings.reference ? LINNET_OK : ln_choose_layouts(w, c->last);
    for (int32_t i = 0; i < w->values.count; ++i) {
        const ln_work_value *v = ln_value_at(w, i);
        c->last[i] = c->last[i] && ln_has_layouts(w, i);
        c->checked[i] = 0;
        c->reads[i] = c->outer[i] = v->fetched || v->exported ? AS_DENSE : 0;
    }
    for (int32_t i = 0; i < w->nodes.count && status == LINNET_OK; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        c->wide[i] = false;
        if (node->state != LN_NODE_READY) continue;
        if (!w->settings.reference) status = ln_runs_in_f32(w, node, &c->wide[i]);
        const int32_t y = node->n_outputs > 0 ? node->outputs[0] : -1;
        for (int k = ln_is_assign(node); k < node->n_inputs; ++k) {
            const int32_t x = node->inputs[k];
            if (x < 0) continue;
            int how = w->settings.reference ? AS_DENSE : 1 << ln_layout_read(w, node, k, y < 0 || !c->last[y]);
            if (c->wide[i] && ln_is_half(ln_value_at(w, x)->tensor.dtype)) how |= AS_F32;
            if (ln_is_kernel(node) && ln_is_family(node, LN_FAMILY_MAP)) how |= BY_MAP;
            c->reads[x] |= (uint8_t)how;
            if (c->costs[i] < 0) c->outer[x] |= (uint8_t)how;
        }
    }
    return status;
}

/* Nanoseconds of a cast of the value to f32 or back. */
static double cast_cost(const ln_work *w, const ln_tensor *t) {
    const double bytes = (double)ln_known_bytes(t);
    ln_counts counts = {.read = bytes, .written = 2 * bytes};
    counts.work[LN_RATE_MAP] = (double)ln_count(t);
    return (double)w->settings.machine->step + ln_counts_ns(w->settings.machine, w->settings.features, &counts);
}

/* Returns the nanoseconds that the CPU needs to convert the value so that it can be read in the ways `readers`. On a
 * device, and in transfers, values are dense and have the dtype of the graph. */
static double converting(const choice *c, int32_t value, int readers, bool made_there, bool read_there) {
    const ln_work *w = c->w;
    const ln_work_value *v = ln_value_at(w, value);
    const int32_t maker = c->made[value];
    if (read_there) readers |= AS_DENSE;
    double ns = 0;
    if (ln_has_layouts(w, value) && readers & (c->last[value] && !made_there ? AS_DENSE : AS_LAST))
        ns += ln_on_threads(w, ln_conversion_cost(w->settings.machine, w->settings.features, &v->tensor));
    if (!ln_is_half(v->tensor.dtype)) return ns;
    /* Whether the value stays in f32, so that its maker needs no cast. */
    const bool kept = readers & BY_MAP && v->uses == 1 && !v->fetched && !v->exported && !read_there;
    const int casts = (readers & AS_F32 ? 1 : 0) + (!made_there && maker >= 0 && c->wide[maker] && !kept);
    return ns + casts * ln_on_threads(w, cast_cost(w, &v->tensor));
}

static void count_conversion(choice *c, int32_t value, int32_t home, bool made_there) {
    if (value < 0 || c->checked[value] == home + 1 || ln_value_at(c->w, value)->host != NULL) return;
    c->checked[value] = home + 1;
    c->islands[home].cpu += converting(c, value, c->reads[value], false, false);
    c->islands[home].device += converting(c, value, c->outer[value], made_there, !made_there);
}

/* Counts what the CPU converts with each island on the device, and what it would convert without. */
static void count_conversions(choice *c) {
    for (int32_t i = 0; i < c->w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(c->w, i);
        const int32_t home = node->state == LN_NODE_READY ? island_of(c, i) : -1;
        for (int o = 0; home >= 0 && o < node->n_outputs; ++o) count_conversion(c, node->outputs[o], home, true);
        for (int k = 0; home >= 0 && k < node->n_inputs; ++k)
            if (node->inputs[k] >= 0 && island_of(c, c->made[node->inputs[k]]) != home)
                count_conversion(c, node->inputs[k], home, false);
    }
}

/* ---- epilogues --------------------------------------------------------------------------------------------------- */

/* Subtracts the time that epilogues save from the cost of the CPU. If only one of the two nodes would move to the
 * device, the time that the CPU then loses is added to the cost of the device. */
static linnet_status count_savings(choice *c) {
    ln_work *w = c->w;
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (node->state != LN_NODE_READY || !ln_is_kernel(node) || !ln_is_family(node, LN_FAMILY_MAP)) continue;
        int32_t op = -1;
        double saved;
        const linnet_status status = ln_epilogue_saving(w, c->made, c->costs, c->last, i, &op, &saved);
        if (status != LINNET_OK) return status;
        const int32_t home = island_of(c, i), from = island_of(c, op);
        if (home >= 0 && home == from)
            c->islands[home].cpu -= saved;
        else if (home >= 0 || from >= 0)
            c->islands[home >= 0 ? home : from].device += saved;
    }
    return LINNET_OK;
}

/* Asks the device for the cost of each op together with the map that is its epilogue. This is then the cost of the
 * pair. */
static linnet_status ask_pairs(choice *c) {
    ln_work *w = c->w;
    const ln_device *d = ln_device_at(w, c->place);
    for (int32_t i = 0; i < w->nodes.count && d->limits.epilogues; ++i) {
        const ln_work_node *map = ln_node_at(w, i);
        if (c->costs[i] < 0 || !ln_is_family(map, LN_FAMILY_MAP)) continue;
        for (int tile = 0; tile < map->n_inputs && c->fused[i] == NULL; ++tile) {
            const ln_work_node *heavy = ln_epilogue_op(w, c->made, map, i, tile, c->place);
            const int32_t op = heavy != NULL ? c->made[map->inputs[tile]] : -1;
            if (op < 0 || c->costs[op] < 0) continue;
            ln_work_node *node;
            linnet_step step;
            linnet_status status = ln_epilogue_node(w, heavy, map, tile, LN_LAYOUT_DENSE, &node);
            if (status == LINNET_OK && node == NULL) continue;
            if (status == LINNET_OK) status = ln_device_step_of(w, node, c->place, &w->pool, &step);
            if (status != LINNET_OK) return status;
            const double cost = d->is.cost(d->is.context, &step);
            if (!(cost >= 0)) continue;
            c->fused[i] = node;
            c->taken[op] = true;
            c->costs[op] = 0;
            c->costs[i] = cost;
        }
    }
    return LINNET_OK;
}

/* ---- offers ------------------------------------------------------------------------------------------------------ */

/* Returns the node as the device would run it, with its op if it is an epilogue. */
static const ln_work_node *step_node(const choice *c, int32_t i) {
    return c->fused[i] != NULL ? c->fused[i] : ln_node_at(c->w, i);
}

/* Adds what consecutive nodes of an island cost on the device. */
static linnet_status add_run(choice *c, const int32_t *run, int32_t n, const linnet_step **steps) {
    ln_work *w = c->w;
    const ln_device *d = ln_device_at(w, c->place);
    for (int32_t first = 0; first < n;) {
        linnet_offer offer = {.struct_size = sizeof offer, .count = 1, .cost_ns = c->costs[run[first]]};
        const ln_work_node *node = step_node(c, run[first]);
        const char *name = node->name;
        const int code = d->is.offer != NULL ? d->is.offer(d->is.context, steps + first, (int)(n - first), &offer) : 0;
        if (code != 0) return ln_device_failed(d, code, "offer a cost", name, w->error);
        if (offer.count == 0) {
            const linnet_status status = ln_refuse(w, node, c->place);
            if (status != LINNET_OK) return status;
            ++first;
            continue;
        }
        if (offer.count < 0 || offer.count > n - first || !(offer.cost_ns >= 0)) {
            ln_device_failed(d, offer.count, "offer a cost", name, w->error);
            ln_expected(w->error, "a count of 0 to %d and nanoseconds of at least 0", (int)(n - first));
            ln_got(w->error, "a count of %d and %g ns", (int)offer.count, offer.cost_ns);
            return ln_hint(w->error, "report this bug of the device's library");
        }
        c->islands[root(c->islands, run[first])].device += offer.cost_ns;
        first += offer.count;
    }
    return LINNET_OK;
}

/* Adds the costs of all candidates, run by run. A node of the CPU or of another island ends a run and its claim. */
static linnet_status add_costs(choice *c) {
    ln_work *w = c->w;
    const int32_t nodes = w->nodes.count;
    int32_t n = 0, *run = ln_pool_array(&w->pool, nodes, sizeof *run);
    linnet_step *steps = ln_pool_array(&w->pool, nodes, sizeof *steps);
    const linnet_step **offered = ln_pool_array(&w->pool, nodes, sizeof *offered);
    if (w->pool.failed) return ln_work_no_memory(w);
    linnet_status status = LINNET_OK;
    for (int32_t i = 0; i < nodes && status == LINNET_OK; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (node->state != LN_NODE_READY || (c->costs[i] >= 0 && is_free(c, node)) || c->taken[i]) continue;
        const int32_t home = island_of(c, i);
        if (n > 0 && home != island_of(c, run[0])) {
            status = add_run(c, run, n, offered);
            n = 0;
        }
        if (home < 0 || status != LINNET_OK) continue;
        run[n] = i;
        offered[n] = &steps[n];
        if (ln_device_at(w, c->place)->is.offer != NULL)
            status = ln_device_step_of(w, step_node(c, i), c->place, &w->pool, &steps[n]);
        ++n;
    }
    return status != LINNET_OK || n == 0 ? status : add_run(c, run, n, offered);
}

/* ---- islands ----------------------------------------------------------------------------------------------------- */

/* Asks one device about all nodes of the CPU. */
static linnet_status ask_device(choice *c) {
    ln_work *w = c->w;
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        ln_work_node *node = ln_node_at(w, i);
        c->costs[i] = -1;
        c->fused[i] = NULL;
        c->taken[i] = false;
        if (node->state != LN_NODE_READY || !ln_is_kernel(node)) continue;
        if (!ln_has_place(c->allowed[i], c->place)) continue;
        if (ln_is_refused(w, node, c->place)) {
            node->reason = LN_REASON_REFUSED;
            continue;
        }
        const linnet_status asked = ask(c, node, &c->costs[i]);
        if (asked != LINNET_OK) return asked;
        c->islands[i] = (island){.parent = i};
    }
    linnet_status status = note_readers(c);
    if (status == LINNET_OK && !w->settings.reference) status = ask_pairs(c);
    if (status != LINNET_OK) return status;
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
        if (view) continue;
        double ns = 0;
        status = ln_body_cost(w, ln_node_at(w, i), &ns);
        if (status != LINNET_OK) return status;
        home->cpu += ns;
    }
    count_transfers(c);
    status = add_costs(c);
    if (status == LINNET_OK) status = ln_end_if_refused(w);
    if (status == LINNET_OK && !w->settings.reference) status = count_savings(c);
    if (status != LINNET_OK) return status;
    count_conversions(c);
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        ln_work_node *node = ln_node_at(w, i);
        if (node->state != LN_NODE_READY || !ln_is_kernel(node)) continue;
        const bool forced = !ln_has_place(c->allowed[i], LN_CPU);
        const uint8_t asked = c->hinted[i] ? LN_REASON_HINT : LN_REASON_SCOPE;
        if (c->costs[i] < 0) {
            if (node->reason == LN_REASON_NONE) node->reason = c->allowed[i] == 1 ? asked : LN_REASON_CANNOT;
            continue;
        }
        const island *home = &c->islands[root(c->islands, i)];
        if (!home->real) continue;
        if (!forced && home->device > home->cpu) {
            node->reason = LN_REASON_COST;
            continue;
        }
        node->device = c->place;
        node->reason = forced ? asked : LN_REASON_CHOSEN;
    }
    return LINNET_OK;
}

/* Notes where a hint or the scope of the node permits it to run. */
static void note_scope(choice *c, int32_t i) {
    const ln_work_node *node = ln_node_at(c->w, i);
    c->allowed[i] = ln_body_places(c->w, node, &c->hinted[i]);
    c->stays[i] = c->hinted[i] || ln_is_assign(node) || node->bodies[0] != NULL || is_free(c, node);
    for (int o = 0; o < node->n_outputs && !c->stays[i]; ++o)
        c->stays[i] = node->outputs[o] >= 0 && ln_count(&ln_value_at(c->w, node->outputs[o])->tensor) == 0;
}

/* Moves copies that take no time to where their operands are made: a value that is only reshaped must not travel. */
static void follow_views(const choice *c) {
    for (int32_t i = 0; i < c->w->nodes.count; ++i) {
        ln_work_node *node = ln_node_at(c->w, i);
        if (node->state != LN_NODE_READY || !ln_is_kernel(node) || !is_free(c, node)) continue;
        const int32_t maker = c->made[node->inputs[0]];
        if (maker >= 0 && ln_on_device(ln_node_at(c->w, maker))) node->device = ln_node_at(c->w, maker)->device;
    }
}

linnet_status ln_pass_places(ln_work *w) {
    const int32_t n = w->nodes.count, n_values = w->values.count;
    choice c = {.w = w};
    c.costs = ln_pool_array(&w->pool, n, sizeof *c.costs);
    c.fused = ln_pool_array(&w->pool, n, sizeof *c.fused);
    c.taken = ln_pool_array(&w->pool, n, sizeof *c.taken);
    c.allowed = ln_pool_array(&w->pool, n, sizeof *c.allowed);
    c.hinted = ln_pool_array(&w->pool, n, sizeof *c.hinted);
    c.stays = ln_pool_array(&w->pool, n, sizeof *c.stays);
    c.islands = ln_pool_array(&w->pool, n, sizeof *c.islands);
    c.made = ln_find_makers(w);
    c.counted = ln_pool_array(&w->pool, n_values, sizeof *c.counted);
    c.checked = ln_pool_array(&w->pool, n_values, sizeof *c.checked);
    c.last = ln_pool_array(&w->pool, n_values, sizeof *c.last);
    c.wide = ln_pool_array(&w->pool, n, sizeof *c.wide);
    c.reads = ln_pool_array(&w->pool, n_values, sizeof *c.reads);
    c.outer = ln_pool_array(&w->pool, n_values, sizeof *c.outer);
    if (w->pool.failed) return ln_work_no_memory(w);
    for (int32_t i = 0; i < n; ++i) {
        ln_node_at(w, i)->number = i;
        ln_body_sweep(w, ln_node_at(w, i));
        if (ln_node_at(w, i)->state == LN_NODE_READY) note_scope(&c, i);
    }
    linnet_status status = LINNET_OK;
    const int32_t devices = ln_device_count(w->settings.n_devices);
    for (c.place = 1; c.place <= devices && status == LINNET_OK; ++c.place) status = ask_device(&c);
    if (status == LINNET_OK) follow_views(&c);
    return status != LINNET_OK ? status : ln_check_scopes(w, c.allowed, c.stays);
}
