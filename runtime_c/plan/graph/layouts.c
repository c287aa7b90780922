/* layouts.c - chooses the layout of each value. It changes no value, so that passes may ask for the choice. Ops that
 * prefer a layout get it unless kernels and conversions together cost less without it; pointwise ops and copies then
 * follow their neighbours in groups, in the layout for which fewer bytes are converted. */
#include "plan/graph/layouts.h"

#include "base/layout.h"
#include "kernel/cost.h"
#include "plan/graph/call.h"
#include "plan/graph/sets.h"

enum wish { /* what a node wants for an operand or a result; FOLLOW: the layout of the node's first output */
            FREE = LN_PREFER_FREE,
            DENSE = LN_PREFER_DENSE,
            LAST = LN_PREFER_CHANNELS_LAST,
            FOLLOW = LN_PREFER_FOLLOW
};

/* A set of values that get the same layout. The root of the set has the cost of each choice. */
typedef struct group {
    int32_t parent;
    uint8_t fixed; /* FREE, DENSE or LAST */
    /* For regions: the layouts in which nodes read the value, one bit each. The bit FREE stands for the region's
     * layout. */
    uint8_t read;
    uint64_t as_dense, as_last; /* cost of the choice: bytes to convert, or for regions, nanoseconds */
} group;

/* Tells whether elements of the node's first operand or result share bytes. Such tensors are always dense. */
static bool shares_bytes(const ln_work *w, const ln_work_node *node) {
    return (node->n_inputs > 0 && node->inputs[0] >= 0 &&
            ln_dtype_bits(ln_value_at(w, node->inputs[0])->tensor.dtype) == 4) ||
           (node->n_outputs > 0 && node->outputs[0] >= 0 &&
            ln_dtype_bits(ln_value_at(w, node->outputs[0])->tensor.dtype) == 4);
}

/* Returns the layout that the node wants for input `input`, or for its outputs if input is -1. */
static int wish_of(const ln_work *w, const ln_work_node *node, int input) {
    if (!ln_is_kernel(node) || node->dense || shares_bytes(w, node)) return DENSE;
    if (node->op->layout != NULL) {
        const bool present = node->n_inputs > 0 && node->inputs[0] >= 0;
        return node->op->layout(node->attributes, present ? &ln_value_at(w, node->inputs[0])->tensor : NULL, input);
    }
    const int wish = node->op->layouts >> 2 * (input < 2 ? input + 1 : 3) & 3;
    return wish == LAST && !ln_channels_first(node->op, node->attributes) ? DENSE : wish;
}

static int32_t root(group *g, int32_t i) { return ln_root(g, sizeof *g, i); }

static void join(group *g, int32_t a, int32_t b) {
    a = root(g, a);
    b = root(g, b);
    if (a == b) return;
    g[b].parent = a;
    g[a].as_dense += g[b].as_dense;
    g[a].as_last += g[b].as_last;
}

/* Tells whether an operand takes part in the layout of a FOLLOW node: full rank and not broadcast in any dimension. */
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
            /* Whether it is the first output, or one like it: the outputs of an op with any number of outputs are
             * alike. */
            const bool alike = o == 0 || node->op == NULL || node->op->max_outputs < 0;
            const int wish = alike ? wish_of(w, node, -1) : DENSE;
            g[node->outputs[o]].fixed = t->rank < 3 || wish == FREE ? DENSE : wish == FOLLOW ? FREE : (uint8_t)wish;
        }
    }
}

/* ---- regions: ops that prefer a layout, and what lies between them -------------------------------------------------
 */

/* Tells whether the node is an anchor: its fastest kernels need channels-last memory, but it can compute in dense
 * memory too. */
static bool anchors(const ln_work *w, const ln_work_node *node) {
    if (node->state != LN_NODE_READY || !ln_is_kernel(node) || node->op->layout != NULL) return false;
    return wish_of(w, node, -1) == LAST || (node->n_inputs > 0 && wish_of(w, node, 0) == LAST);
}

bool ln_has_layouts(const ln_work *w, int32_t value) {
    if (value < 0) return false;
    const ln_work_value *v = ln_value_at(w, value);
    return v->known && v->host == NULL && v->tensor.rank >= 3 && !either_layout(&v->tensor);
}

/* Joins the operands and results of a node that must have the same layout. */
static void bind_node(const ln_work *w, group *g, const ln_work_node *node, bool anchor) {
    const int32_t y = node->n_outputs > 0 ? node->outputs[0] : -1;
    const int own = wish_of(w, node, -1);
    int32_t first = ln_has_layouts(w, y) && (own == FOLLOW || (anchor && own == LAST)) ? y : -1;
    for (int o = 1; own == FOLLOW && first >= 0 && o < node->n_outputs; ++o)
        if (ln_has_layouts(w, node->outputs[o]) && g[node->outputs[o]].fixed == FREE) join(g, y, node->outputs[o]);
    for (int k = 0; k < node->n_inputs; ++k) {
        const int32_t x = node->inputs[k];
        if (!ln_has_layouts(w, x)) continue;
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

/* Returns a value of the anchor, which identifies the anchor's region; -1 if no operand of the anchor could be
 * converted. */
static int32_t member(const ln_work *w, const ln_work_node *node) {
    if (wish_of(w, node, -1) == LAST && ln_has_layouts(w, node->outputs[0])) return node->outputs[0];
    for (int k = 0; k < node->n_inputs; ++k)
        if (wish_of(w, node, k) == LAST && ln_has_layouts(w, node->inputs[k])) return node->inputs[k];
    return -1;
}

/* Tells whether the value must be converted if its region gets the layout. */
static bool converted(const group *v, int layout) {
    const int made = v->fixed == FREE ? layout : v->fixed;
    const int read = v->read & 1 << FREE ? v->read | 1 << layout : v->read;
    return (read & ~(1 << FREE | 1 << made)) != 0;
}

/* Computes by how many nanoseconds the node is slower on dense operands than on operands in channels-last memory. */
static linnet_status slower_dense(ln_work *w, const ln_work_node *node, uint64_t *ns) {
    double dense, last;
    linnet_status status = ln_node_cost(w, node, LN_LAYOUT_DENSE, &dense);
    if (status == LINNET_OK) status = ln_node_cost(w, node, LN_LAYOUT_CHANNELS_LAST, &last);
    if (status != LINNET_OK) return status;
    const double more = dense - last;
    *ns = more > 0 ? (uint64_t)(more < 1e15 ? more : 1e15) + 1 : 0; /* rounded up: a tie goes to the preferred layout */
    return LINNET_OK;
}

/* Marks the anchors of regions that cost less in dense memory, because their conversions would cost more than their
 * kernels lose without the preferred layout. Once the kernels of a region lose more than its conversions cost, no more
 * kernels are asked. */
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
        if (!ln_has_layouts(w, i)) continue;
        const ln_work_value *v = ln_value_at(w, i);
        if (v->fetched || v->exported) g[i].read |= 1 << DENSE;
        const uint64_t ns = (uint64_t)ln_conversion_cost(w->settings.machine, w->settings.features, &v->tensor);
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

static void choose(const ln_work *w, group *g, bool *last) {
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
                continue; /* converted at plan time, or the same bytes in both layouts */
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
        const ln_work_value *v = ln_value_at(w, i);
        int choice = g[i].fixed;
        if (choice == FREE) {
            const group *r = &g[root(g, i)];
            /* On a tie, channels-last is chosen. The neighbour is then a heavy op, and a map in its layout can become
               its epilogue. */
            choice = r->as_dense > 0 && r->as_dense >= r->as_last ? LAST : DENSE;
        }
        last[i] = choice == LAST && v->host == NULL && v->tensor.rank >= 3;
    }
}

linnet_status ln_choose_layouts(ln_work *w, bool *last) {
    group *groups = ln_pool_array(&w->pool, w->values.count, sizeof *groups);
    if (groups == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < w->nodes.count; ++i) ln_node_at(w, i)->dense = false;
    begin(w, groups);
    const linnet_status status = settle(w, groups);
    if (status != LINNET_OK) return status;
    begin(w, groups);
    choose(w, groups, last);
    return LINNET_OK;
}

int ln_layout_read(const ln_work *w, const ln_work_node *node, int k, bool dense) {
    const int wish = wish_of(w, node, k);
    if (wish != FOLLOW) return wish;
    const ln_tensor *t = &ln_value_at(w, node->inputs[k])->tensor,
                    *shape =
                        node->n_outputs > 0 && node->outputs[0] >= 0 ? &ln_value_at(w, node->outputs[0])->tensor : t;
    const bool full = follows(t, shape, ln_is_family(node, LN_FAMILY_MAP));
    if (!full || (either_layout(shape) && !either_layout(t))) return FREE;
    return dense ? DENSE : LAST;
}
