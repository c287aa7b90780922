/* body.c - turns a loop or a branch into one step. Its function is planned once, as a program that the step runs in its
   scratch. This requires that every shape inside is known and that the values carried by a loop keep their shapes. */
#include "plan/compile/body.h"

#include "base/layout.h"
#include "kernel/common/copy_kinds.h"
#include "plan/compile/expand.h"
#include "plan/compile/infer.h"
#include "plan/compile/loop.h"
#include "plan/graph/fold.h"
#include "plan/graph/refusals.h"

#include <string.h>

enum {
    MOST_NESTED = 32,
    MOST_STACKED = 4 << 20, /* the plan reserves at most so many bytes for a stacked result of a loop that may end
                               early; the memory of a larger result grows in the run */
    SHORT_LOOP = 8,      /* a loop of at most so many iterations is replaced by the nodes of its iterations. This is not
                            faster, but values that depend only on the counter are folded. A segment keeps its loops, because
                            the nodes of a short loop would take more memory than a longer loop does */
    FOLDED_LOOP = 1024,  /* a loop of at most so many iterations, whose operands are all constants, is evaluated at plan
                        time */
    TRIAL = 1 << 15,     /* limit of nodes and values for one evaluation at plan time */
    MOST_TRIED = 1 << 18 /* limit of the nodes of all evaluations that gave no constant */
};

static bool same_shape(const ln_tensor *a, const ln_tensor *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           (a->rank <= 0 || memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0);
}

static const ln_work_value *operand(const ln_work *w, const ln_work_node *node, int32_t i) {
    return i < node->n_inputs && node->inputs[i] >= 0 ? ln_value_at(w, node->inputs[i]) : NULL;
}

/* Tells whether the loop's body returns the carried value in parameter p unchanged. Exporters carry weights this
 * way. */
static bool stays(const ln_function *f, int32_t p) {
    int32_t value = f->outputs[p - 1];
    for (int32_t i = f->n_nodes - 1; i >= 0 && value != f->inputs[p]; --i) {
        const ln_node *node = &f->nodes[i];
        if (node->op->family == LN_FAMILY_COPY && node->outputs[0] == value &&
            ln_copy_is(node->attributes, LN_COPY_KIND_IDENTITY))
            value = node->inputs[0];
    }
    return value == f->inputs[p];
}

/* Binds parameter p of a body to operand p + first of its node. In a loop (moving >= 0) the first two parameters are
   the counter and the condition, which is always true inside the body. The next `moving` parameters may change from one
   iteration to the next. */
static void bind(const ln_work *w, const ln_work_node *node, const ln_function *f, ln_work_value *v, int32_t p,
                 int32_t first, int32_t moving) {
    static const uint8_t holds = 1;
    const ln_work_value *from = operand(w, node, p + first);
    const ln_quant *quant = v->tensor.quant;
    v->known = true;
    v->input = p + first;
    if (moving >= 0 && p < 2) {
        v->tensor = (ln_tensor){.dtype = p == 0 ? LINNET_I64 : LINNET_BOOL, .data = p == 0 ? NULL : &holds};
    } else if (from != NULL) {
        v->tensor = from->tensor;
        if (quant != NULL) v->tensor.quant = quant;
        if (moving >= 0 && p < 2 + moving && !stays(f, p)) {
            v->tensor.data = NULL;
        } else if (from->variable >= 0 && w->settings.read_only != NULL && w->settings.read_only[from->variable]) {
            v->variable = from->variable; /* the body reads it from the store, so its kernels may pack it */
            v->input = -1;
        } else {
            v->imported = from->tensor.data == NULL;
        }
    }
    v->host = v->tensor.data;
    ln_set_layout(&v->tensor, LN_LAYOUT_DENSE);
}

/* Infers the function with the shapes of the node's operands. *out is NULL if it cannot be a program of its own. */
static linnet_status open_body(ln_work *w, const ln_work_node *node, int64_t function, int32_t first, int32_t moving,
                               ln_work **out) {
    const ln_function *f = &w->model->functions[function];
    ln_work **slot = ln_list_add(w, &w->bodies, sizeof *slot);
    ln_work *b = slot != NULL ? ln_pool_alloc(&w->pool, sizeof *b) : NULL;
    *out = NULL;
    if (b == NULL) return ln_work_no_memory(w);
    *slot = b;
    linnet_error ignored; /* a failure here is not final: the loop is then planned in another way */
    ln_work_init(b, w->model, w->memory, w->persistent, &ignored);
    b->kind = LN_WORK_BODY;
    b->budget = w->budget;
    b->settings = w->settings;
    if (LN_HAS_DEVICES) {
        b->offload.refusals = w->offload.refusals;
        b->offload.graph = ++w->offload.refusals->graphs;
    }
    b->depth = w->depth + 1;
    int32_t base;
    linnet_status status = b->depth > MOST_NESTED ? LINNET_UNSUPPORTED : ln_expand_values(b, f, &base);
    bool *needed = ln_pool_array(&b->pool, f->n_values, sizeof *needed);
    b->fetches = ln_pool_array(&b->pool, f->n_outputs, sizeof *b->fetches);
    if (needed == NULL || b->fetches == NULL) return ln_work_no_memory(w);
    b->n_fetches = f->n_outputs;
    for (int32_t p = 0; status == LINNET_OK && p < f->n_inputs; ++p)
        bind(w, node, f, ln_value_at(b, f->inputs[p]), p, first, moving);
    for (int32_t o = 0; o < f->n_outputs; ++o) {
        const bool wanted = moving < 0    ? node->outputs[o] >= 0
                            : o == 0      ? operand(w, node, 1) != NULL
                            : o <= moving ? !stays(f, o + 1)
                                          : node->outputs[o - 1] >= 0;
        b->fetches[o] = wanted ? f->outputs[o] : -1;
        if (wanted) needed[f->outputs[o]] = true;
    }
    if (status == LINNET_OK) status = ln_expand_nodes(b, f, 0, needed);
    bool whole = status == LINNET_OK;
    for (int32_t i = 0; whole && i < b->nodes.count; ++i) whole = ln_node_at(b, i)->state != LN_NODE_WAITING;
    for (int32_t o = 0; whole && o < b->n_fetches; ++o)
        whole = b->fetches[o] < 0 || ln_value_at(b, b->fetches[o])->known;
    b->error = NULL; /* b is used until lowering, and neither error record lives so long: `ignored` is local, and the
                        record of `w` may be local to a caller */
    if (whole)
        *out = b;
    else
        ln_work_free(b);
    if (status == LINNET_OUT_OF_MEMORY) return ln_work_no_memory(w);
    return status == LINNET_TOO_LARGE ? ln_work_charge(w, 0) : LINNET_OK; /* a budget error is final */
}

static bool all_constant(const ln_work *w, const ln_work_node *node) {
    for (int32_t i = 0; i < node->n_inputs; ++i)
        if (node->inputs[i] >= 0 && ln_value_at(w, node->inputs[i])->tensor.data == NULL) return false;
    return true;
}

static bool all_known(const ln_work *w, const ln_work_node *node) {
    for (int32_t i = 0; i < node->n_inputs; ++i)
        if (node->inputs[i] >= 0 && !ln_value_at(w, node->inputs[i])->known) return false;
    return true;
}

static void give(ln_work *w, int32_t value, const ln_tensor *t, bool known) {
    if (value < 0) return;
    ln_work_value *v = ln_value_at(w, value);
    v->tensor = *t;
    v->tensor.data = NULL;
    ln_set_layout(&v->tensor, LN_LAYOUT_DENSE);
    v->known = known;
    v->bounded = !known;
}

static bool one_element(const ln_work_value *v) { return v == NULL || ln_count(&v->tensor) == 1; }

/* Returns the value of a scalar operand if known; `absent` if there is no operand, -1 if it must be computed. */
static int64_t number(const ln_work_value *v, int64_t absent) {
    if (v == NULL) return absent;
    return v->tensor.data == NULL ? -1 : ln_max(ln_load_i64(v->tensor.data, v->tensor.dtype, 0), 0);
}

/* Tells whether the shapes that a loop carries do not change, and the ranks of the stacked results are known. */
static bool repeats(const ln_work *w, const ln_work_node *node, const ln_work *b, int32_t carried) {
    for (int32_t o = 1; o < b->n_fetches; ++o) {
        if (b->fetches[o] < 0) continue;
        const ln_tensor *y = &ln_value_at(b, b->fetches[o])->tensor;
        const ln_work_value *x = o <= carried ? operand(w, node, 1 + o) : NULL;
        if (o <= carried ? x == NULL || !same_shape(&x->tensor, y) : y->rank >= LN_MAX_RANK) return false;
    }
    return b->fetches[0] < 0 || one_element(ln_value_at(b, b->fetches[0]));
}

/* Discards the values, blobs and bodies whose numbers are not below these counts. */
static void forget(ln_work *w, int32_t values, int32_t blobs, int32_t bodies) {
    for (int32_t i = values; i < w->values.count; ++i) {
        const int32_t blob = ln_value_at(w, i)->blob;
        if (blob >= 0 && blob < blobs) --((ln_blob *)w->blobs.items + blob)->holders;
    }
    for (int32_t i = blobs; i < w->blobs.count; ++i) ln_blob_free(w, (ln_blob *)w->blobs.items + i);
    for (int32_t i = bodies; i < w->bodies.count; ++i) ln_work_free(((ln_work **)w->bodies.items)[i]);
    w->values.count = values;
    w->blobs.count = blobs;
    w->bodies.count = bodies;
}

/* Evaluates a loop whose operands are constants. *done is set if its results are constants too. If they are not, or if
   the loop takes too many nodes, everything is restored. */
static linnet_status try_constant(ln_work *w, ln_work_node *node, bool *done) {
    ln_budget *b = w->budget;
    *done = false;
    if (b->trial > 0) return *done = true, ln_unroll(w, node); /* inside a loop that is being tried */
    if (b->tried >= MOST_TRIED) return LINNET_OK;
    const uint64_t begin = b->nodes;
    const int32_t nodes = w->nodes.count, values = w->values.count, blobs = w->blobs.count, bodies = w->bodies.count;
    linnet_error ignored, *error = w->error;
    w->error = &ignored;
    b->trial = begin + TRIAL;
    const linnet_status status = ln_unroll(w, node);
    b->trial = 0;
    w->error = error;
    *done = status == LINNET_OK && w->nodes.count == nodes;
    if (*done) return LINNET_OK;
    if (status == LINNET_OUT_OF_MEMORY) return ln_work_no_memory(w);
    for (int32_t o = 0; o < node->n_outputs; ++o) {
        if (node->outputs[o] < 0) continue;
        ln_work_value *v = ln_value_at(w, node->outputs[o]);
        if (v->blob >= 0 && v->blob < blobs) --((ln_blob *)w->blobs.items + v->blob)->holders;
        v->host = v->tensor.data = NULL;
        v->blob = -1;
        v->known = false;
        v->bounded = 0;
    }
    b->tried += b->nodes - begin;
    b->nodes = begin;
    w->nodes.count = nodes;
    forget(w, values, blobs, bodies);
    node->state = LN_NODE_WAITING;
    return LINNET_OK;
}

/* Sets *all to the tensor that stacks so many rows. Returns false if its number of bytes is unknown or too large. */
static bool stacked(const ln_tensor *row, int64_t rows, ln_tensor *all, uint64_t *bytes) {
    *all = *row;
    memmove(all->dims + 1, all->dims, (size_t)all->rank * sizeof *all->dims);
    all->dims[0] = rows;
    ++all->rank;
    return ln_bytes(all, bytes);
}

linnet_status ln_loop(ln_work *w, ln_work_node *node) {
    const ln_while_attributes *a = node->attributes;
    const int32_t carried = (int32_t)a->carried;
    const ln_function *f = &w->model->functions[a->body_function];
    if (node->n_inputs > f->n_inputs || ln_function_assigns(w->model, a->body_function)) return ln_unroll(w, node);
    if (!all_known(w, node)) return ln_work_append(w, node);
    const ln_work_value *bound = operand(w, node, 0), *begins = operand(w, node, 1);
    if (one_element(bound) && number(bound, INT64_MAX) <= FOLDED_LOOP && all_constant(w, node)) {
        bool done;
        const linnet_status tried = try_constant(w, node, &done);
        if (tried != LINNET_OK || done) return tried;
    }
    ln_work *b;
    const linnet_status status = open_body(w, node, a->body_function, 0, carried, &b);
    if (status != LINNET_OK) return status;
    bound = operand(w, node, 0), begins = operand(w, node, 1);
    if (b == NULL || !one_element(bound) || !one_element(begins) || !repeats(w, node, b, carried))
        return ln_unroll(w, node);
    const int64_t trips = number(bound, INT64_MAX);
    const bool always =
        number(begins, 1) == 1 && number(b->fetches[0] < 0 ? NULL : ln_value_at(b, b->fetches[0]), 1) == 1;
    /* If no iteration ever runs, `empty` in loop.c uses the shapes that are set below. */
    const bool never = trips == 0 || number(begins, 1) == 0;
    if (!never && always && w->kind != LN_WORK_SEGMENT && trips > 0 && trips <= SHORT_LOOP) return ln_unroll(w, node);
    const bool counted = always && trips > 0; /* exactly this many iterations run */
    ln_tensor t;
    uint64_t bytes;
    for (int32_t o = carried + 1; counted && o < b->n_fetches; ++o)
        if (b->fetches[o] >= 0 && !stacked(&ln_value_at(b, b->fetches[o])->tensor, trips, &t, &bytes))
            return ln_unroll(w, node);
    for (int32_t o = 1; o < b->n_fetches; ++o) {
        if (b->fetches[o] < 0) continue;
        const ln_tensor *row = &ln_value_at(b, b->fetches[o])->tensor;
        if (o <= carried) {
            give(w, node->outputs[o - 1], row, !never);
            continue;
        }
        const bool fits = stacked(row, never ? 0 : trips, &t, &bytes);
        if (!counted && (!fits || bytes > MOST_STACKED)) t.dims[0] = -1;
        give(w, node->outputs[o - 1], &t, counted);
    }
    if (never) return ln_unroll(w, node);
    for (int32_t c = 0; c < carried; ++c) {
        if (b->fetches[1 + c] >= 0 || node->outputs[c] < 0) continue;
        ln_work_node *same = ln_work_identity(w, node->name, node->inputs[2 + c], node->outputs[c]);
        const linnet_status passed = same != NULL ? ln_infer_node(w, same) : ln_work_no_memory(w);
        if (passed != LINNET_OK) return passed;
        node->outputs[c] = -1;
    }
    node->bodies[0] = b;
    node->state = LN_NODE_READY;
    return ln_work_append(w, node);
}

linnet_status ln_branch(ln_work *w, ln_work_node *node, bool *done) {
    const ln_if_attributes *a = node->attributes;
    const int64_t functions[2] = {a->then_function, a->else_function};
    ln_work *bodies[2] = {NULL, NULL};
    *done = false;
    if (!all_known(w, node) || !one_element(operand(w, node, 0))) return LINNET_OK;
    for (int k = 0; k < 2; ++k) {
        if (ln_function_assigns(w->model, functions[k])) return LINNET_OK;
        const linnet_status status = open_body(w, node, functions[k], 1, -1, &bodies[k]);
        if (status != LINNET_OK || bodies[k] == NULL) return status;
    }
    for (int32_t o = 0; o < node->n_outputs; ++o)
        if (node->outputs[o] >= 0 && !same_shape(&ln_value_at(bodies[0], bodies[0]->fetches[o])->tensor,
                                                 &ln_value_at(bodies[1], bodies[1]->fetches[o])->tensor))
            return LINNET_OK;
    for (int32_t o = 0; o < node->n_outputs; ++o)
        if (node->outputs[o] >= 0)
            give(w, node->outputs[o], &ln_value_at(bodies[0], bodies[0]->fetches[o])->tensor, true);
    memcpy(node->bodies, bodies, sizeof bodies);
    node->state = LN_NODE_READY;
    *done = true;
    return ln_work_append(w, node);
}
