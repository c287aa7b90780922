/* layout.c - chooses the physical layout of every value and inserts the conversions. Ops that prefer a layout get it
 * unless kernels and conversions together cost less without it; pointwise ops and copies then follow their neighbours
 * in groups, in the layout for which fewer bytes are converted. */
#include "kernel/cost.h"
#include "plan/graph/fold.h"
#include "plan/passes/passes.h"

#include <string.h>

enum wish { /* FOLLOW: the layout of the node's first output */
            FREE = LN_PREFER_FREE,
            DENSE = LN_PREFER_DENSE,
            LAST = LN_PREFER_CHANNELS_LAST,
            FOLLOW = LN_PREFER_FOLLOW
};

/* Values that get the same layout, and, in its root, what each choice costs. */
typedef struct group {
    int32_t parent;
    uint8_t fixed;              /* FREE, DENSE or LAST */
    uint8_t read;               /* regions: one bit for each of FREE (in the region's layout), DENSE and LAST */
    uint64_t as_dense, as_last; /* bytes to convert; regions: nanoseconds */
} group;

/* Whether elements of the node's first operand or result share bytes. Such tensors are always dense. */
static bool shares_bytes(const ln_work *w, const ln_work_node *node) {
    return (node->n_inputs > 0 && node->inputs[0] >= 0 &&
            ln_dtype_bits(ln_value_at(w, node->inputs[0])->tensor.dtype) == 4) ||
           (node->n_outputs > 0 && node->outputs[0] >= 0 &&
            ln_dtype_bits(ln_value_at(w, node->outputs[0])->tensor.dtype) == 4);
}

/* The layout that the node wants for input `input`, or for its outputs if input is -1. */
static int wish_of(const ln_work *w, const ln_work_node *node, int input) {
    if (!ln_is_kernel(node) || node->dense || shares_bytes(w, node)) return DENSE;
    if (node->op->layout != NULL) {
        const bool present = node->n_inputs > 0 && node->inputs[0] >= 0;
        return node->op->layout(node->attributes, present ? &ln_value_at(w, node->inputs[0])->tensor : NULL, input);
    }
    const int wish = node->op->layouts >> 2 * (input < 2 ? input + 1 : 3) & 3;
    return wish == LAST && !ln_channels_first(node->op, node->attributes) ? DENSE : wish;
}

static int32_t root(group *g, int32_t i) {
    while (g[i].parent != i) {
        g[i].parent = g[g[i].parent].parent;
        i = g[i].parent;
    }
    return i;
}

static void join(group *g, int32_t a, int32_t b) {
    a = root(g, a);
    b = root(g, b);
    if (a == b) return;
    g[b].parent = a;
    g[a].as_dense += g[b].as_dense;
    g[a].as_last += g[b].as_last;
}

/* Whether an operand takes part in the layout of a FOLLOW node: full rank and not broadcast in any dimension. */
static bool follows(const ln_tensor *t, const ln_tensor *y, bool pointwise) {
    if (t->rank < 3 || t->rank != y->rank) return false;
    for (int d = 0; pointwise && d < t->rank; ++d)
        if (t->dims[d] != y->dims[d]) return false;
    return true;
}

static bool either_layout(const ln_tensor *t) { /* both layouts have the same bytes */
    ln_tensor last = *t;
    if (t->rank < 3) return false;
    ln_set_layout(&last, LN_LAYOUT_CHANNELS_LAST);
    return ln_is_dense(&last);
}

static void vote(group *g, int32_t value, int wish, uint64_t bytes) {
    if (wish == DENSE) g[root(g, value)].as_last += bytes;
    if (wish == LAST) g[root(g, value)].as_dense += bytes;
}

/* Makes a group of each value, and fixes the layouts of the results that do not follow. */
static void begin(const ln_work *w, group *g) {
    for (int32_t i = 0; i < w->values.count; ++i) g[i] = (group){.parent = i, .fixed = DENSE};
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (node->state != LN_NODE_READY) continue;
        for (int o = 0; o < node->n_outputs; ++o) {
            if (node->outputs[o] < 0) continue;
            const ln_tensor *t = &ln_value_at(w, node->outputs[o])->tensor;
            const bool alike = o == 0 || node->op == NULL || node->op->max_outputs < 0; /* or equal outputs */
            const int wish = alike ? wish_of(w, node, -1) : DENSE;
            g[node->outputs[o]].fixed = t->rank < 3 || wish == FREE ? DENSE : wish == FOLLOW ? FREE : (uint8_t)wish;
        }
    }
}

/* ---- regions: ops that prefer a layout, and what lies between them -------------------------------------------------
 */

/* Whether the node prefers a layout, in which its fastest kernels work, but could compute in another one. */
static bool anchors(const ln_work *w, const ln_work_node *node) {
    if (node->state != LN_NODE_READY || !ln_is_kernel(node) || node->op->layout != NULL) return false;
    return wish_of(w, node, -1) == LAST || (node->n_inputs > 0 && wish_of(w, node, 0) == LAST);
}

/* A value that would have to be converted: neither a constant nor the same bytes in both layouts. */
static bool converts(const ln_work *w, int32_t value) {
    if (value < 0) return false;
    const ln_work_value *v = ln_value_at(w, value);
    return v->known && v->host == NULL && v->tensor.rank >= 3 && !either_layout(&v->tensor);
}

/* Joins the operands of a node that get one layout. */
static void bind_node(const ln_work *w, group *g, const ln_work_node *node, bool anchor) {
    const int32_t y = node->n_outputs > 0 ? node->outputs[0] : -1;
    const int own = wish_of(w, node, -1);
    int32_t first = converts(w, y) && (own == FOLLOW || (anchor && own == LAST)) ? y : -1;
    for (int o = 1; own == FOLLOW && first >= 0 && o < node->n_outputs; ++o)
        if (converts(w, node->outputs[o]) && g[node->outputs[o]].fixed == FREE) join(g, y, node->outputs[o]);
    for (int k = 0; k < node->n_inputs; ++k) {
        const int32_t x = node->inputs[k];
        if (!converts(w, x)) continue;
        int wish = wish_of(w, node, k);
        if (wish == FOLLOW)
            wish = y >= 0 && first == y &&
                           follows(&ln_value_at(w, x)->tensor, &ln_value_at(w, y)->tensor,
                                   ln_is_family(node, LN_FAMILY_MAP))
                       ? FOLLOW
                       : FREE;
        const bool bound = wish == FOLLOW || (anchor && wish == LAST);
        if (bound || wish != FREE) g[x].read |= (uint8_t)(1 << (bound ? FREE : wish));
        if (bound && first >= 0) join(g, first, x);
        if (bound && first < 0) first = x;
    }
}

/* The value of an anchor by which its region is known; -1: it converts nothing. */
static int32_t member(const ln_work *w, const ln_work_node *node) {
    if (wish_of(w, node, -1) == LAST && converts(w, node->outputs[0])) return node->outputs[0];
    for (int k = 0; k < node->n_inputs; ++k)
        if (wish_of(w, node, k) == LAST && converts(w, node->inputs[k])) return node->inputs[k];
    return -1;
}

/* Whether the value is converted if its region has the layout. */
static bool converted(const group *v, int layout) {
    const int made = v->fixed == FREE ? layout : v->fixed;
    const int read = v->read & 1 << FREE ? v->read | 1 << layout : v->read;
    return (read & ~(1 << FREE | 1 << made)) != 0;
}

/* The nanoseconds by which the node's kernel is slower on dense operands than in the layout that the node prefers. */
static linnet_status slower_dense(ln_work *w, const ln_work_node *node, uint64_t *ns) {
    double dense, last;
    linnet_status status = ln_node_cost(w, node, LN_LAYOUT_DENSE, &dense);
    if (status == LINNET_OK) status = ln_node_cost(w, node, LN_LAYOUT_CHANNELS_LAST, &last);
    if (status != LINNET_OK) return status;
    const double more = dense - last;
    *ns = more > 0 ? (uint64_t)(more < 1e15 ? more : 1e15) + 1 : 0; /* rounded up: a tie goes to the preferred layout */
    return LINNET_OK;
}

/* Marks the anchors of regions that cost less in dense memory: what their conversions cost is more than what their
 * kernels lose. Kernels are asked only until they have lost that much. */
static linnet_status settle(ln_work *w, group *g) {
    bool any = false;
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (node->state != LN_NODE_READY) continue;
        const bool anchor = anchors(w, node);
        any |= anchor;
        if (anchor && node->outputs[0] >= 0 && g[node->outputs[0]].fixed == LAST) g[node->outputs[0]].fixed = FREE;
        bind_node(w, g, node, anchor);
    }
    for (int32_t i = 0; any && i < w->values.count; ++i) {
        if (!converts(w, i)) continue;
        const ln_work_value *v = ln_value_at(w, i);
        if (v->fetched || v->exported) g[i].read |= 1 << DENSE;
        const uint64_t ns = (uint64_t)ln_conversion_cost(w->machine, w->features, &v->tensor);
        group *region = &g[root(g, i)];
        if (converted(&g[i], DENSE)) region->as_dense += ns;
        if (converted(&g[i], LAST)) region->as_last += ns;
    }
    for (int mark = 0; any && mark < 2; ++mark)
        for (int32_t i = 0; i < w->nodes.count; ++i) {
            ln_work_node *node = ln_node_at(w, i);
            const int32_t value = anchors(w, node) ? member(w, node) : -1;
            group *region = value >= 0 ? &g[root(g, value)] : NULL;
            if (region == NULL || region->as_last <= region->as_dense) continue;
            if (mark) {
                node->dense = true;
                continue;
            }
            uint64_t ns = 0;
            const linnet_status status = slower_dense(w, node, &ns);
            if (status != LINNET_OK) return status;
            region->as_dense += ns;
        }
    return LINNET_OK;
}

/* ---- groups -------------------------------------------------------------------------------------------------------
 */

static void choose(ln_work *w, group *g) {
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (node->state != LN_NODE_READY || node->n_outputs == 0 || node->outputs[0] < 0) continue;
        const int32_t y = node->outputs[0];
        const ln_tensor *shape = &ln_value_at(w, y)->tensor;
        const bool follow = g[y].fixed == FREE;
        for (int o = 1; follow && o < node->n_outputs; ++o)
            if (node->outputs[o] >= 0 && g[node->outputs[o]].fixed == FREE) join(g, y, node->outputs[o]);
        for (int k = 0; k < node->n_inputs; ++k) {
            if (node->inputs[k] < 0) continue;
            const int32_t x = node->inputs[k];
            const ln_work_value *v = ln_value_at(w, x);
            const int wish = wish_of(w, node, k);
            if (v->host != NULL || either_layout(&v->tensor))
                continue; /* the value is converted at plan time, or has
                             the same bytes in both layouts */
            if (wish != FOLLOW) {
                if (g[x].fixed == FREE) vote(g, x, wish, ln_known_bytes(&v->tensor));
            } else if (follow && follows(&v->tensor, shape, ln_is_family(node, LN_FAMILY_MAP))) {
                if (g[x].fixed == FREE)
                    join(g, y, x);
                else
                    vote(g, y, g[x].fixed, ln_known_bytes(&v->tensor));
            }
        }
    }
    for (int32_t i = 0; i < w->values.count; ++i) {
        const ln_work_value *v = ln_value_at(w, i);
        if ((v->fetched || v->exported) && g[i].fixed == FREE && v->known)
            vote(g, i, DENSE, ln_known_bytes(&v->tensor));
    }
    for (int32_t i = 0; i < w->values.count; ++i) {
        ln_work_value *v = ln_value_at(w, i);
        int choice = g[i].fixed;
        if (choice == FREE) {
            const group *r = &g[root(g, i)];
            /* On a tie, channels-last is chosen. The neighbour is then a heavy op, and a map in its layout can become
               its epilogue. */
            choice = r->as_dense > 0 && r->as_dense >= r->as_last ? LAST : DENSE;
        }
        if (choice == LAST && v->host == NULL && v->tensor.rank >= 3)
            ln_set_layout(&v->tensor, LN_LAYOUT_CHANNELS_LAST);
    }
}

/* The value in the wanted layout: itself, a constant folded into that layout, or the result of a new identity node. */
static linnet_status convert(ln_work *w, int32_t *others, int32_t n_others, const char *name, int32_t *value,
                             int wish) {
    const ln_work_value *v = ln_value_at(w, *value);
    if (wish == DENSE ? ln_is_dense(&v->tensor) : ln_is_channels_last(&v->tensor)) return LINNET_OK;
    const int32_t from = *value;
    if (from < n_others && others[from] >= 0) {
        *value = others[from];
        return LINNET_OK;
    }
    const bool constant = v->tensor.data != NULL;
    const int32_t made = ln_work_twin(w, from);
    if (made < 0) return ln_work_no_memory(w);
    ln_set_layout(&ln_value_at(w, made)->tensor, wish == LAST ? LN_LAYOUT_CHANNELS_LAST : LN_LAYOUT_DENSE);
    ln_work_node *node = ln_work_identity(w, name, from, made);
    if (node == NULL) return ln_work_no_memory(w);
    if (from < n_others) others[from] = made;
    *value = made;
    if (constant) return ln_work_fold(w, node->op, node->attributes, 1, node->inputs, 1, node->outputs);
    return ln_work_append(w, node);
}

/* A fetched or exported value is dense. If the node computes channels-last data, it writes a second value, which is
   then converted. */
static linnet_status give_dense(ln_work *w, int32_t *others, ln_work_node *node, int o, ln_work_node **after) {
    const int32_t value = node->outputs[o], twin = ln_work_twin(w, value);
    if (twin < 0) return ln_work_no_memory(w);
    ln_set_layout(&ln_value_at(w, value)->tensor, LN_LAYOUT_DENSE);
    node->outputs[o] = twin;
    others[value] = twin;
    *after = ln_work_identity(w, node->name, twin, value);
    return *after != NULL ? LINNET_OK : ln_work_no_memory(w);
}

/* Returns a copy of a value that cannot be returned itself: an input, a variable, or a value of an earlier segment.
 */
static linnet_status copy_value(ln_work *w, const char *name, int32_t from, int32_t *to) {
    if ((*to = ln_work_twin(w, from)) < 0) return ln_work_no_memory(w);
    ln_work_node *node = ln_work_identity(w, name, from, *to);
    return node != NULL ? ln_work_append(w, node) : ln_work_no_memory(w);
}

static bool fetched_before(const ln_work *w, int32_t i) {
    for (int32_t k = 0; k < i; ++k)
        if (w->fetches[k] == w->fetches[i]) return true;
    return false;
}

static linnet_status place_node(ln_work *w, int32_t *others, int32_t n_others, ln_work_node *node) {
    linnet_status status;
    const int32_t y = node->n_outputs > 0 ? node->outputs[0] : -1;
    for (int k = 0; k < node->n_inputs; ++k) {
        if (node->inputs[k] < 0) continue;
        int wish = wish_of(w, node, k);
        if (wish == FOLLOW) {
            const ln_tensor *t = &ln_value_at(w, node->inputs[k])->tensor,
                            *shape = y >= 0 ? &ln_value_at(w, y)->tensor : t;
            const bool full = follows(t, shape, ln_is_family(node, LN_FAMILY_MAP));
            wish = !full ? FREE : ln_is_dense(shape) ? DENSE : LAST;
            if (full && either_layout(shape) && !either_layout(t)) wish = FREE;
        }
        if (w->reference) wish = DENSE;
        if (wish != FREE && ln_value_at(w, node->inputs[k])->tensor.rank >= 3 &&
            (status = convert(w, others, n_others, node->name, &node->inputs[k], wish)) != LINNET_OK)
            return status;
    }
    if (ln_is_assign(node)) {
        const ln_work_value *v = ln_value_at(w, node->inputs[1]);
        if (v->variable >= 0 && (status = copy_value(w, node->name, node->inputs[1], &node->inputs[1])) != LINNET_OK)
            return status;
        ln_value_at(w, node->inputs[1])->committed = true;
    }
    if ((status = ln_work_append(w, node)) != LINNET_OK) return status;
    for (int o = 0; o < node->n_outputs; ++o) {
        if (node->outputs[o] < 0) continue;
        const ln_work_value *v = ln_value_at(w, node->outputs[o]);
        if ((!v->fetched && !v->exported) || ln_is_dense(&v->tensor)) continue;
        ln_work_node *after = NULL;
        if ((status = give_dense(w, others, node, o, &after)) != LINNET_OK) return status;
        if ((status = ln_work_append(w, after)) != LINNET_OK) return status;
    }
    return LINNET_OK;
}

linnet_status ln_pass_layout(ln_work *w) {
    const int32_t n_values = w->values.count;
    int32_t n_nodes;
    group *groups = ln_pool_array(&w->pool, n_values, sizeof *groups);
    int32_t *others = ln_pool_array(&w->pool, n_values, sizeof *others);
    if (w->pool.failed) return ln_work_no_memory(w);
    for (int32_t i = 0; i < n_values; ++i) others[i] = -1;
    if (!w->reference) {
        begin(w, groups);
        const linnet_status status = settle(w, groups);
        if (status != LINNET_OK) return status;
        begin(w, groups);
        choose(w, groups);
    }
    ln_work_node **order = ln_work_take_nodes(w, &n_nodes);
    if (order == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < n_nodes; ++i) {
        const linnet_status status =
            order[i]->state == LN_NODE_READY ? place_node(w, others, n_values, order[i]) : ln_work_append(w, order[i]);
        if (status != LINNET_OK) return status;
    }
    for (int32_t i = 0; i < w->n_fetches; ++i) {
        if (w->fetches[i] < 0) continue;
        const ln_work_value *v = ln_value_at(w, w->fetches[i]);
        bool own = v->host != NULL || (v->input < 0 && v->variable < 0 && !v->imported);
        if (w->separate) own &= v->host == NULL && !fetched_before(w, i);
        if (!v->known || own) continue;
        const linnet_status status = copy_value(w, v->name, w->fetches[i], &w->fetches[i]);
        if (status != LINNET_OK) return status;
    }
    return ln_work_sweep(w);
}
