/* order.c - the order of the steps where a signature updates variables: what frees memory is done at once, and an
 * update comes when nobody will read the old value and nothing can fail any more, so that it may be written over it. */
#include "core/program.h"

#include <string.h>

typedef struct order {
    ln_work *w;
    ln_work_node **nodes; /* ready ones, as they were */
    int32_t n;
    int32_t *starts, *readers; /* per value: slots [starts[v], starts[v + 1]) of `readers`, which are nodes */
    int32_t *missing;          /* per node: operand slots whose values are not made yet */
    int32_t *origin;           /* per value: the one whose memory it has, as far as views tell */
    int32_t *left;             /* per origin: slots to come that read it, or a view of it */
    int32_t *old;              /* per variable: slots to come that read the value from before */
    int32_t *check;            /* per node: the first that checks the same operand, or -1 when it cannot fail */
    bool *checked;             /* per node of these: done */
    int32_t checks;            /* left to be done */
} order;

static uint64_t bytes_of(const ln_tensor *t) {
    uint64_t bytes = 0;
    return ln_bytes(t, &bytes) ? bytes : 0;
}

static int32_t slots_of(const ln_work_node *node) { return node->n_inputs + node->n_extra; }

/* The operand of an assign that is its variable is no reader of the old value. */
static int32_t first_slot(const ln_work_node *node) { return ln_is_assign(node); }

/* ---- what can fail ------------------------------------------------------------------------------------------ */

static bool can_fail(const ln_work *w, const ln_work_node *node) {
    if (node->op == NULL || node->device != 0 || (node->op->flags & LN_OP_CAN_FAIL)) return true;
    for (int b = 0; b < 2 && node->bodies[b] != NULL; ++b)
        for (int32_t i = 0; i < node->bodies[b]->nodes.count; ++i)
            if (can_fail(node->bodies[b], ln_node_at(node->bodies[b], i))) return true;
    for (int o = 0; o < node->n_outputs; ++o) /* a result that grows */
        if (node->outputs[o] >= 0 && ln_count(&ln_value_at(w, node->outputs[o])->tensor) < 0) return true;
    return false;
}

/* The indices that a gather or scatter checks, as they were before copies that keep all elements, and how many places
 * these choose from, negative when an index may not be; -1 when several numbers make an index. */
static int32_t indices_of(const order *s, const ln_work_node *node, int64_t *places) {
    const ln_tensor *x = &ln_value_at(s->w, node->inputs[0])->tensor;
    int64_t kind, axis;
    bool from_end = true;
    if (node->op->id == LN_OP_GATHER) {
        const ln_gather_attributes *a = node->attributes;
        kind = a->kind == LN_GATHER_KIND_ND && a->batch_dims == 0 ? 0 : a->kind == LN_GATHER_KIND_ND ? -1 : 1;
        axis = a->axis;
        from_end = a->from_end;
    } else if (node->op->id == LN_OP_SCATTER) {
        const ln_scatter_attributes *a = node->attributes;
        kind = a->kind == LN_SCATTER_KIND_ELEMENTS;
        axis = a->axis;
    } else {
        return -1;
    }
    const ln_tensor *index = &ln_value_at(s->w, node->inputs[1])->tensor;
    if (kind < 0 || (kind == 0 && (index->rank < 1 || index->dims[index->rank - 1] != 1))) return -1;
    const int at = kind == 0 ? 0 : ln_axis(axis, x->rank);
    if (at < 0) return -1;
    *places = from_end ? x->dims[at] : -x->dims[at];
    int32_t value = node->inputs[1];
    for (;;) {
        const int32_t made = ln_value_at(s->w, value)->producer;
        if (made < 0 || s->nodes[made]->op == NULL || s->nodes[made]->op->id != LN_OP_COPY) return value;
        switch (((const ln_copy_attributes *)s->nodes[made]->attributes)->kind) {
        case LN_COPY_KIND_IDENTITY:
        case LN_COPY_KIND_RESHAPE:
        case LN_COPY_KIND_TRANSPOSE:
        case LN_COPY_KIND_EXPAND:
        case LN_COPY_KIND_SQUEEZE:
        case LN_COPY_KIND_UNSQUEEZE: value = s->nodes[made]->inputs[0]; break;
        default: return value;
        }
    }
}

/* Once indices were found to be in range, looking up the same places with them cannot fail any more. */
static linnet_status find_checks(order *s) {
    int32_t *value = ln_pool_array(&s->w->pool, s->n, sizeof *value);
    int64_t *places = ln_pool_array(&s->w->pool, s->n, sizeof *places);
    if (value == NULL || places == NULL) return ln_work_no_memory(s->w);
    for (int32_t i = 0; i < s->n; ++i) {
        s->check[i] = -1;
        if (!can_fail(s->w, s->nodes[i])) continue;
        value[i] = s->nodes[i]->op == NULL || s->nodes[i]->device != 0 ? -1 : indices_of(s, s->nodes[i], &places[i]);
        s->check[i] = i;
        for (int32_t k = 0; k < i && value[i] >= 0; ++k)
            if (s->check[k] == k && value[k] == value[i] &&
                (places[k] == places[i] || (places[k] < 0 && places[k] == -places[i]))) {
                s->check[i] = k;
                break;
            }
        s->checks += s->check[i] == i;
    }
    return LINNET_OK;
}

/* ---- what may be written over its variable ------------------------------------------------------------------- */

static void find_updates(order *s) {
    for (int32_t i = 0; i < s->n; ++i) {
        const ln_work_node *node = s->nodes[i];
        if (!ln_is_assign(node)) continue;
        const int32_t variable = ln_value_at(s->w, node->inputs[0])->variable;
        ln_work_value *x = ln_value_at(s->w, node->inputs[1]);
        const ln_work_value *y = node->outputs[0] >= 0 ? ln_value_at(s->w, node->outputs[0]) : x;
        if (x->producer >= 0 && x->updates < 0 && x->known && x->host == NULL && x->device == 0 && !x->fetched &&
            !y->fetched && ln_is_dense(&x->tensor))
            x->updates = variable;
    }
}

/* ---- the order ------------------------------------------------------------------------------------------------ */

static linnet_status connect(order *s) {
    const int32_t n_values = s->w->values.count;
    int32_t slots = 0;
    for (int32_t i = 0; i < s->n; ++i) slots += slots_of(s->nodes[i]);
    s->starts = ln_pool_array(&s->w->pool, (int64_t)n_values + 2, sizeof *s->starts);
    s->readers = ln_pool_array(&s->w->pool, slots, sizeof *s->readers);
    s->missing = ln_pool_array(&s->w->pool, s->n, sizeof *s->missing);
    s->check = ln_pool_array(&s->w->pool, s->n, sizeof *s->check);
    s->checked = ln_pool_array(&s->w->pool, s->n, sizeof *s->checked);
    s->origin = ln_pool_array(&s->w->pool, n_values, sizeof *s->origin);
    s->left = ln_pool_array(&s->w->pool, n_values, sizeof *s->left);
    s->old = ln_pool_array(&s->w->pool, s->w->model->n_variables, sizeof *s->old);
    if (s->starts == NULL || s->readers == NULL || s->missing == NULL || s->check == NULL || s->checked == NULL ||
        s->origin == NULL || s->left == NULL || s->old == NULL)
        return ln_work_no_memory(s->w);
    for (int32_t v = 0; v < n_values; ++v) {
        ln_value_at(s->w, v)->producer = -1;
        s->origin[v] = v;
    }
    for (int32_t i = 0; i < s->n; ++i) {
        const ln_work_node *node = s->nodes[i];
        const bool view = ln_is_view(s->w, node);
        for (int32_t o = 0; o < node->n_outputs; ++o) {
            if (node->outputs[o] < 0) continue;
            ln_value_at(s->w, node->outputs[o])->producer = i;
            if (view) s->origin[node->outputs[o]] = s->origin[node->inputs[0]];
            if (ln_is_assign(node)) s->origin[node->outputs[o]] = s->origin[node->inputs[1]];
        }
    }
    for (int32_t i = 0; i < s->n; ++i)
        for (int32_t k = first_slot(s->nodes[i]); k < slots_of(s->nodes[i]); ++k) {
            const int32_t v = s->nodes[i]->inputs[k];
            if (v < 0) continue;
            ++s->starts[v + 2];
            s->missing[i] += ln_value_at(s->w, v)->producer >= 0;
            ++s->left[s->origin[v]];
            const int32_t variable = ln_value_at(s->w, s->origin[v])->variable;
            if (variable >= 0) ++s->old[variable];
        }
    for (int32_t v = 0; v < n_values; ++v) s->starts[v + 2] += s->starts[v + 1];
    for (int32_t i = 0; i < s->n; ++i)
        for (int32_t k = first_slot(s->nodes[i]); k < slots_of(s->nodes[i]); ++k)
            if (s->nodes[i]->inputs[k] >= 0) s->readers[s->starts[s->nodes[i]->inputs[k] + 1]++] = i;
    return LINNET_OK;
}

/* Slots of the node that read the variable's old value. */
static int32_t own_reads(const order *s, const ln_work_node *node, int32_t variable) {
    int32_t reads = 0;
    for (int32_t k = first_slot(node); k < slots_of(node); ++k)
        reads += node->inputs[k] >= 0 && ln_value_at(s->w, s->origin[node->inputs[k]])->variable == variable;
    return reads;
}

/* An update that would have to be kept elsewhere until the end of the run, if it were made now. */
static bool early(const order *s, int32_t i) {
    for (int32_t o = 0; o < s->nodes[i]->n_outputs; ++o) {
        const int32_t v = s->nodes[i]->outputs[o], variable = v >= 0 ? ln_value_at(s->w, v)->updates : -1;
        if (variable < 0) continue;
        if (s->checks > 0 || s->old[variable] > own_reads(s, s->nodes[i], variable)) return true;
    }
    return false;
}

/* Whether the node takes nothing and frees something, or takes nothing at all. */
static bool frees(const order *s, int32_t i) {
    const ln_work_node *node = s->nodes[i];
    int64_t taken = 0;
    for (int32_t o = 0; o < node->n_outputs; ++o) {
        const int32_t v = node->outputs[o];
        if (v < 0 || s->origin[v] != v || ln_value_at(s->w, v)->updates >= 0 || ln_value_at(s->w, v)->fetched) continue;
        taken += (int64_t)bytes_of(&ln_value_at(s->w, v)->tensor);
    }
    if (taken == 0) return true;
    for (int32_t k = 0; k < slots_of(node); ++k) {
        if (node->inputs[k] < 0) continue;
        const int32_t v = s->origin[node->inputs[k]];
        if (ln_value_at(s->w, v)->producer < 0 || ln_value_at(s->w, v)->fetched) continue;
        int32_t own = 0;
        bool before = false;
        for (int32_t j = 0; j < slots_of(node); ++j) {
            if (node->inputs[j] < 0 || s->origin[node->inputs[j]] != v) continue;
            before |= j < k;
            ++own;
        }
        if (!before && own == s->left[v]) taken -= (int64_t)bytes_of(&ln_value_at(s->w, v)->tensor);
    }
    return taken < 0;
}

/* Of the nodes that could be next: the first that frees memory, else the first, but an early update only for want of
 * anything else. */
static int32_t choose(const order *s, const int32_t *ready, int32_t n_ready) {
    int32_t first = -1;
    for (int32_t r = 0; r < n_ready; ++r) {
        if (early(s, ready[r])) continue;
        if (frees(s, ready[r])) return r;
        if (first < 0) first = r;
    }
    return first < 0 ? 0 : first;
}

static linnet_status arrange(order *s) {
    int32_t *ready = ln_pool_array(&s->w->pool, s->n, sizeof *ready), n_ready = 0;
    if (ready == NULL) return ln_work_no_memory(s->w);
    for (int32_t i = 0; i < s->n; ++i)
        if (s->missing[i] == 0) ready[n_ready++] = i;
    s->w->last_failure = -1;
    for (int32_t at = 0; at < s->n; ++at) {
        const int32_t r = choose(s, ready, n_ready), i = ready[r];
        ln_work_node *node = s->nodes[i];
        memmove(ready + r, ready + r + 1, (size_t)(--n_ready - r) * sizeof *ready);
        ((ln_work_node **)s->w->nodes.items)[at] = node;
        if (s->check[i] >= 0 && !s->checked[s->check[i]]) {
            s->checked[s->check[i]] = true;
            --s->checks;
            s->w->last_failure = at;
        }
        for (int32_t k = first_slot(node); k < slots_of(node); ++k) {
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

/* Whether all is here (a later segment, or one before it, leaves its new values for the end of the run), and every
 * variable is assigned once: of several values the last one counts. */
static bool updates_variables(const ln_work *w, bool *assigned) {
    bool some = false;
    if (w->nested || w->waiting > 0) return false;
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
    s.nodes = ln_pool_array(&w->pool, w->nodes.count, sizeof *s.nodes);
    if (assigned == NULL || s.nodes == NULL) return ln_work_no_memory(w);
    if (!updates_variables(w, assigned)) return LINNET_OK;
    for (int32_t i = 0; i < w->nodes.count; ++i)
        if (ln_node_at(w, i)->state == LN_NODE_READY) s.nodes[s.n++] = ln_node_at(w, i);
    w->nodes.count = s.n;
    linnet_status status = connect(&s);
    if (status != LINNET_OK || (status = find_checks(&s)) != LINNET_OK) return status;
    find_updates(&s);
    w->ordered = true;
    return arrange(&s);
}
