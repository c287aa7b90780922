/* order.c - the order of the steps in a signature that updates variables. Steps that free memory run as soon as
   possible. An update runs when no later step reads the old value and no later step can fail, so that it may overwrite
   the old value. */
#include "base/layout.h"
#include "kernel/common/copy_kinds.h"
#include "plan/graph/views.h"
#include "plan/passes/passes.h"

#include <string.h>

typedef struct order {
    ln_work *w;
    ln_work_node **nodes; /* the ready nodes, in their original order */
    int32_t n;
    int32_t *maker;            /* per value: the node that computes it; -1: none */
    int32_t *starts, *readers; /* the nodes that read value v are entries [starts[v], starts[v + 1]) of `readers` */
    int32_t *missing;          /* per node: number of operands that are not computed yet */
    int32_t *origin;           /* per value: the value whose memory it uses, found by following views */
    int32_t *left;  /* per origin: number of operands, of nodes not placed yet, that are this value or a view of it */
    int32_t *old;   /* per variable: number of operands, of nodes not placed yet, that are its old value */
    int32_t *check; /* per node: the first node that checks the same operand; -1: it cannot fail */
    bool *checked;  /* for each node in `check`: whether its check has run */
    bool *urgent;   /* per node: it checks operands before other nodes use them, or computes a value for such a
                       check */
    int32_t checks; /* number of checks that have not run yet */
    /* Per node: the number of the last call of `light` that reached it; stamp: that of this call. */
    int32_t *seen, stamp;
    int32_t *led, n_led; /* the nodes that the last call of `light` reached */
} order;

/* An assign does not count as a reader of the old value: its operand only names the variable. */
static int32_t first_slot(const ln_work_node *node) { return ln_is_assign(node); }

/* ---- checks that can fail ---------------------------------------------------------------------------------------- */

static bool can_fail(const ln_work *w, const ln_work_node *node) {
    if (!ln_is_kernel(node) || (node->op->flags & LN_OP_CAN_FAIL)) return true;
    if (node->bodies[0] != NULL && ln_device_count(w->settings.n_devices) > 0)
        return true; /* it is not known yet where the nodes of the body run */
    for (int b = 0; b < 2 && node->bodies[b] != NULL; ++b)
        for (int32_t i = 0; i < node->bodies[b]->nodes.count; ++i)
            if (can_fail(node->bodies[b], ln_node_at(node->bodies[b], i))) return true;
    for (int o = 0; o < node->n_outputs; ++o) /* a growing result may need memory that is not there */
        if (node->outputs[o] >= 0 && ln_count(&ln_value_at(w, node->outputs[o])->tensor) < 0) return true;
    return false;
}

/* The indices that a node checks in a run, according to the shape rule. If they come from copies that keep all
   elements, `value` is the source of the copies. */
typedef struct range {
    int32_t value;     /* the indices; -1: the op checks no indices, or several numbers form one index */
    int64_t positions; /* number of positions from which the indices select */
    bool from_start;   /* negative indices are errors */
} range;

static range range_of(const order *s, const ln_work_node *node) {
    enum { FEW = 4 }; /* no op with more operands or results checks indices */
    range r = {.value = -1};
    if (!ln_is_kernel(node) || node->n_inputs > FEW || node->n_outputs > FEW) return r;
    ln_tensor in[FEW] = {0}, out[FEW] = {0};
    ln_infer_facts facts = ln_no_facts;
    const ln_infer rule = {.op = node->op,
                           .attributes = node->attributes,
                           .n_inputs = node->n_inputs,
                           .n_outputs = node->n_outputs,
                           .inputs = in,
                           .outputs = out,
                           .facts = &facts};
    for (int k = 0; k < node->n_inputs; ++k)
        if (node->inputs[k] >= 0) in[k] = ln_value_at(s->w, node->inputs[k])->tensor;
    if ((node->op->flags & (LN_OP_CAN_FAIL | LN_OP_REGISTERED)) != LN_OP_CAN_FAIL ||
        node->op->infer(&rule) != LINNET_OK || facts.indices < 0)
        return r;
    r.positions = facts.places;
    r.from_start = facts.from_start;
    for (int32_t v = r.value = node->inputs[facts.indices]; v >= 0; r.value = v) {
        const int32_t made = s->maker[v];
        if (made < 0 || !ln_is_family(s->nodes[made], LN_FAMILY_COPY)) return r;
        if (!ln_copy_keeps_numbers(s->nodes[made]->attributes)) return r;
        v = s->nodes[made]->inputs[0];
    }
    return r;
}

/* Tells whether the value is cheap to compute. `led` receives the nodes that compute it, and the sizes of their results
   are subtracted from `bytes`. */
static bool light(order *s, int32_t value, int64_t *bytes) {
    const int32_t made = s->maker[value];
    if (made < 0 || s->seen[made] == s->stamp) return true;
    const ln_work_node *node = s->nodes[made];
    if (node->op == NULL || (node->op->flags & LN_OP_EPILOGUE) || node->bodies[0] != NULL) return false;
    s->seen[made] = s->stamp;
    s->led[s->n_led++] = made;
    for (int32_t o = 0; o < node->n_outputs; ++o)
        if (node->outputs[o] >= 0) *bytes -= (int64_t)ln_known_bytes(&ln_value_at(s->w, node->outputs[o])->tensor);
    for (int32_t k = 0; k < ln_slots(node) && *bytes >= 0; ++k)
        if (node->inputs[k] >= 0 && !light(s, node->inputs[k], bytes)) return false;
    return *bytes >= 0;
}

/* Adds a step that only checks the indices. It is a gather over the same number of positions, which all read the same
   byte of memory. */
static linnet_status add_check(order *s, const ln_work_node *node, range r) {
    static const ln_gather_attributes from_start = {.kind = LN_GATHER_KIND_TAKE},
                                      either = {.kind = LN_GATHER_KIND_TAKE, .from_end = true};
    static const uint8_t byte;
    ln_work *w = s->w;
    ln_tensor index = ln_value_at(w, r.value)->tensor;
    index.dtype = LINNET_U8;
    index.quant = NULL;
    const ln_tensor table = {.dtype = LINNET_U8, .rank = 1, .dims = {r.positions}};
    const int32_t x = ln_work_add_value(w, "", &table), y = ln_work_add_value(w, node->name, &index);
    ln_work_node *check =
        ln_work_new_node(w, &ln_ops[LN_OP_GATHER], r.from_start ? &from_start : &either, node->name, node->index, 2, 1);
    if (x < 0 || y < 0 || check == NULL) return ln_work_no_memory(w);
    ln_value_at(w, x)->host = &byte;
    ln_value_at(w, x)->known = ln_value_at(w, y)->known = true;
    ln_set_layout(&ln_value_at(w, y)->tensor, LN_LAYOUT_DENSE);
    s->maker[y] = s->n;
    check->inputs[0] = x;
    check->inputs[1] = r.value;
    check->outputs[0] = y;
    check->state = LN_NODE_READY;
    check->checks = true;
    s->urgent[s->n] = true;
    s->nodes[s->n++] = check;
    return ln_work_append(w, check); /* reserves space */
}

/* Finds which nodes check which operands. Once indices have been checked, another lookup in a dimension of the same
 * size cannot fail. Indices that are available early are checked early, so that updates need not wait for the lookups.
 */
static linnet_status find_checks(order *s) {
    const int32_t n = s->n;
    range *ranges = ln_pool_array(&s->w->pool, n, sizeof *ranges);
    const int32_t n_values = s->w->values.count;
    int32_t *latest = ln_pool_array(&s->w->pool, n_values, sizeof *latest); /* per value: 1 + the last node found
                                                                               that checks it; 0: none */
    int32_t *before = ln_pool_array(&s->w->pool, n, sizeof *before);        /* per node: 1 + the previous node that
                                                                               checks the same value; 0: none */
    s->seen = ln_pool_array(&s->w->pool, n, sizeof *s->seen);
    s->led = ln_pool_array(&s->w->pool, n, sizeof *s->led);
    if (s->w->pool.failed) return ln_work_no_memory(s->w);
    for (int32_t i = 0; i < 2 * n; ++i) s->check[i] = -1;
    for (int32_t i = 0; i < n; ++i) {
        if (!can_fail(s->w, s->nodes[i])) continue;
        const range r = ranges[i] = range_of(s, s->nodes[i]);
        s->check[i] = i;
        for (int32_t k = r.value >= 0 ? latest[r.value] - 1 : -1; k >= 0 && s->check[i] == i; k = before[k] - 1)
            if (ranges[k].positions == r.positions && ranges[k].from_start == r.from_start) s->check[i] = k;
        if (s->check[i] != i) continue;
        if (r.value >= 0) {
            before[i] = latest[r.value];
            latest[r.value] = i + 1;
        }
        ++s->checks;
        int64_t most = 0;
        if (r.value >= 0) most = 1024 + 16 * (int64_t)ln_known_bytes(&ln_value_at(s->w, r.value)->tensor);
        ++s->stamp;
        s->n_led = 0;
        if (r.value < 0 || !light(s, r.value, &most)) continue;
        for (int32_t k = 0; k < s->n_led; ++k) s->urgent[s->led[k]] = true;
        s->check[s->n] = i;
        const linnet_status status = add_check(s, s->nodes[i], r);
        if (status != LINNET_OK) return status;
    }
    return LINNET_OK;
}

/* ---- what may be written over its variable ------------------------------------------------------------------- */

/* Tells whether a device keeps new values (linnet_device.keep). It may fail after the last step, so that no step may
 * overwrite a variable. */
static bool devices_keep(const ln_work *w) {
    for (int32_t d = 0; d < ln_device_count(w->settings.n_devices); ++d)
        if (w->settings.devices[d].is.keep != NULL) return true;
    return false;
}

static linnet_status find_updates(order *s) {
    ln_updates *updates = &s->w->updates;
    updates->variable = ln_pool_array(&s->w->pool, s->w->values.count, sizeof *updates->variable);
    if (updates->variable == NULL) return ln_work_no_memory(s->w);
    updates->n = s->w->values.count;
    for (int32_t v = 0; v < updates->n; ++v) updates->variable[v] = -1;
    for (int32_t i = 0; i < s->n && !devices_keep(s->w); ++i) {
        const ln_work_node *node = s->nodes[i];
        if (!ln_is_assign(node)) continue;
        const int32_t variable = ln_value_at(s->w, node->inputs[0])->variable;
        const int32_t made = s->maker[node->inputs[1]];
        const ln_work_value *x = ln_value_at(s->w, node->inputs[1]);
        const ln_work_value *y = node->outputs[0] >= 0 ? ln_value_at(s->w, node->outputs[0]) : x;
        if (made >= 0 && updates->variable[node->inputs[1]] < 0 && x->known && x->host == NULL &&
            ln_is_kernel(s->nodes[made]) && !x->fetched && !y->fetched && ln_is_dense(&x->tensor))
            updates->variable[node->inputs[1]] = variable;
    }
    return LINNET_OK;
}

/* ---- the order ------------------------------------------------------------------------------------------------ */

/* Traces the source of every value. Call this first. */
static linnet_status trace(order *s) {
    const int32_t n_values = s->w->values.count;
    const int64_t n = 2 * (int64_t)s->n; /* including checks */
    s->missing = ln_pool_array(&s->w->pool, n, sizeof *s->missing);
    s->check = ln_pool_array(&s->w->pool, n, sizeof *s->check);
    s->checked = ln_pool_array(&s->w->pool, n, sizeof *s->checked);
    s->urgent = ln_pool_array(&s->w->pool, n, sizeof *s->urgent);
    s->maker = ln_pool_array(&s->w->pool, (int64_t)n_values + n, sizeof *s->maker); /* a check adds two values */
    if (s->w->pool.failed) return ln_work_no_memory(s->w);
    for (int64_t v = 0; v < n_values + n; ++v) s->maker[v] = -1;
    for (int32_t i = 0; i < s->n; ++i)
        for (int32_t o = 0; o < s->nodes[i]->n_outputs; ++o)
            if (s->nodes[i]->outputs[o] >= 0) s->maker[s->nodes[i]->outputs[o]] = i;
    return LINNET_OK;
}

static linnet_status connect_nodes(order *s) {
    const int32_t n_values = s->w->values.count;
    int32_t slots = 0;
    for (int32_t i = 0; i < s->n; ++i) slots += ln_slots(s->nodes[i]);
    s->starts = ln_pool_array(&s->w->pool, (int64_t)n_values + 2, sizeof *s->starts);
    s->readers = ln_pool_array(&s->w->pool, slots, sizeof *s->readers);
    s->origin = ln_pool_array(&s->w->pool, n_values, sizeof *s->origin);
    s->left = ln_pool_array(&s->w->pool, n_values, sizeof *s->left);
    s->old = ln_pool_array(&s->w->pool, s->w->model->n_variables, sizeof *s->old);
    if (s->w->pool.failed) return ln_work_no_memory(s->w);
    for (int32_t v = 0; v < n_values; ++v) s->origin[v] = v;
    for (int32_t i = 0; i < s->n; ++i) {
        const ln_work_node *node = s->nodes[i];
        const int32_t from = ln_is_assign(node) ? node->inputs[1] : ln_is_view(s->w, node) ? node->inputs[0] : -1;
        for (int32_t o = 0; from >= 0 && o < node->n_outputs; ++o)
            if (node->outputs[o] >= 0) s->origin[node->outputs[o]] = s->origin[from];
    }
    for (int32_t i = 0; i < s->n; ++i)
        for (int32_t k = first_slot(s->nodes[i]); k < ln_slots(s->nodes[i]); ++k) {
            const int32_t v = s->nodes[i]->inputs[k];
            if (v < 0) continue;
            ++s->starts[v + 2];
            s->missing[i] += s->maker[v] >= 0;
            ++s->left[s->origin[v]];
            const int32_t variable = ln_value_at(s->w, s->origin[v])->variable;
            if (variable >= 0) ++s->old[variable];
        }
    for (int32_t v = 0; v < n_values; ++v) s->starts[v + 2] += s->starts[v + 1];
    for (int32_t i = 0; i < s->n; ++i)
        for (int32_t k = first_slot(s->nodes[i]); k < ln_slots(s->nodes[i]); ++k)
            if (s->nodes[i]->inputs[k] >= 0) s->readers[s->starts[s->nodes[i]->inputs[k] + 1]++] = i;
    return LINNET_OK;
}

/* Returns the number of slots of the node that read the variable's old value. */
static int32_t own_reads(const order *s, const ln_work_node *node, int32_t variable) {
    int32_t reads = 0;
    for (int32_t k = first_slot(node); k < ln_slots(node); ++k)
        reads += node->inputs[k] >= 0 && ln_value_at(s->w, s->origin[node->inputs[k]])->variable == variable;
    return reads;
}

/* Tells whether the node is an update that would run too early, so that its new value would need memory of its own
   until the end of the run. */
static bool early(const order *s, int32_t i) {
    for (int32_t o = 0; o < s->nodes[i]->n_outputs; ++o) {
        const int32_t v = s->nodes[i]->outputs[o], variable = v >= 0 ? ln_update_of(s->w, v) : -1;
        if (variable < 0) continue;
        if (s->checks > 0 || s->old[variable] > own_reads(s, s->nodes[i], variable)) return true;
    }
    return false;
}

/* Tells whether the node allocates nothing, or frees more than it allocates. */
static bool frees(const order *s, int32_t i) {
    const ln_work_node *node = s->nodes[i];
    int64_t taken = 0;
    for (int32_t o = 0; o < node->n_outputs; ++o) {
        const int32_t v = node->outputs[o];
        if (v < 0 || s->origin[v] != v || ln_update_of(s->w, v) >= 0 || ln_value_at(s->w, v)->fetched) continue;
        taken += (int64_t)ln_known_bytes(&ln_value_at(s->w, v)->tensor);
    }
    if (taken == 0) return true;
    for (int32_t k = 0; k < ln_slots(node); ++k) {
        if (node->inputs[k] < 0) continue;
        const int32_t v = s->origin[node->inputs[k]];
        if (s->maker[v] < 0 || ln_value_at(s->w, v)->fetched) continue;
        int32_t own = 0;
        bool before = false;
        for (int32_t j = 0; j < ln_slots(node); ++j) {
            if (node->inputs[j] < 0 || s->origin[node->inputs[j]] != v) continue;
            before |= j < k;
            ++own;
        }
        if (!before && own == s->left[v]) taken -= (int64_t)ln_known_bytes(&ln_value_at(s->w, v)->tensor);
    }
    return taken < 0;
}

/* Chooses the next node: the first node that is urgent or frees memory, otherwise the first node. An update that would
   run too early is chosen only if there is no other node. If the list is very long, only its first nodes are
   examined. */
static int32_t choose(const order *s, const int32_t *ready, int32_t n_ready) {
    enum { MOST_LOOKED = 1024 };
    int32_t first = -1;
    for (int32_t r = 0; r < n_ready && (r < MOST_LOOKED || first < 0); ++r) {
        if (early(s, ready[r])) continue;
        if (s->urgent[ready[r]] || frees(s, ready[r])) return r;
        if (first < 0) first = r;
    }
    return first < 0 ? 0 : first;
}

static linnet_status arrange(order *s) {
    int32_t *ready = ln_pool_array(&s->w->pool, s->n, sizeof *ready), n_ready = 0;
    if (ready == NULL) return ln_work_no_memory(s->w);
    for (int32_t i = 0; i < s->n; ++i)
        if (s->missing[i] == 0) ready[n_ready++] = i;
    s->w->updates.last_failure = -1;
    for (int32_t at = 0; at < s->n; ++at) {
        const int32_t r = choose(s, ready, n_ready), i = ready[r];
        ln_work_node *node = s->nodes[i];
        memmove(ready + r, ready + r + 1, (size_t)(--n_ready - r) * sizeof *ready);
        ((ln_work_node **)s->w->nodes.items)[at] = node;
        if (s->check[i] >= 0 && !s->checked[s->check[i]]) {
            s->checked[s->check[i]] = true;
            --s->checks;
            s->w->updates.last_failure = at;
        }
        for (int32_t k = first_slot(node); k < ln_slots(node); ++k) {
            if (node->inputs[k] < 0) continue;
            const int32_t v = s->origin[node->inputs[k]], variable = ln_value_at(s->w, v)->variable;
            --s->left[v];
            if (variable >= 0) --s->old[variable];
        }
        for (int32_t o = 0; o < node->n_outputs; ++o) {
            if (node->outputs[o] < 0) continue;
            for (int32_t k = s->starts[node->outputs[o]]; k < s->starts[node->outputs[o] + 1]; ++k) {
                if (--s->missing[s->readers[k]] > 0) continue;
                int32_t to = n_ready++;
                for (; to > 0 && ready[to - 1] > s->readers[k]; --to) ready[to] = ready[to - 1];
                ready[to] = s->readers[k];
            }
        }
    }
    return LINNET_OK;
}

/* Tells whether updates may run in place. There are two conditions. No node waits for a later segment, because then all
   segments keep their new values until the end of the run. Every variable is assigned only once, because only the last
   of several assignments takes effect. */
static bool updates_variables(const ln_work *w, bool *assigned) {
    bool some = false;
    if (w->kind == LN_WORK_BODY || w->waiting > 0) return false;
    for (int32_t i = 0; i < w->values.count; ++i)
        if (ln_value_at(w, i)->imported) return false;
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (node->state != LN_NODE_READY || !ln_is_assign(node)) continue;
        const int32_t variable = ln_value_at(w, node->inputs[0])->variable;
        if (assigned[variable]) return false;
        some = assigned[variable] = true;
    }
    return some;
}

linnet_status ln_pass_order(ln_work *w) {
    order s = {.w = w};
    bool *assigned = ln_pool_array(&w->pool, w->model->n_variables, sizeof *assigned);
    s.nodes = ln_pool_array(&w->pool, 2 * (int64_t)w->nodes.count, sizeof *s.nodes);
    if (w->pool.failed) return ln_work_no_memory(w);
    if (!updates_variables(w, assigned)) return LINNET_OK;
    for (int32_t i = 0; i < w->nodes.count; ++i)
        if (ln_node_at(w, i)->state == LN_NODE_READY) s.nodes[s.n++] = ln_node_at(w, i);
    linnet_status status = trace(&s);
    if (status == LINNET_OK) status = find_checks(&s);
    w->nodes.count = s.n;
    if (status == LINNET_OK) status = connect_nodes(&s);
    if (status == LINNET_OK) status = find_updates(&s);
    if (status != LINNET_OK) return status;
    w->updates.ordered = true;
    return arrange(&s);
}
