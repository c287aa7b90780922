/* loop.c - unrolls a `while` into the nodes of its iterations, if it is short or if its body cannot be planned once
 * (body.c). If trip counts and conditions are known at plan time, it unrolls all iterations. Otherwise it unrolls the
 * loop up to the next condition that must be computed. A later segment, planned at run time, continues from there. */
#include "plan/compile/loop.h"

#include "base/layout.h"
#include "model/structure_values.h"
#include "plan/compile/expand.h"
#include "plan/compile/infer.h"
#include "plan/graph/fold.h"

#include <string.h>

/* The most iterations of one loop that are planned; a model cannot raise this limit. If conditions must be computed,
   each iteration has a segment, and all segments keep their memory. */
enum { MOST_TRIPS = 4096, MOST_SEGMENTS = 1024 };

/* A loop that has begun waits as a node with additional operands after the operands of the function. They are the
   number of finished iterations (a constant) and the results to stack, iteration after iteration. */
typedef struct loop {
    const ln_work_node *node;
    const ln_function *body;
    int32_t n_carried, n_inner, n_scans; /* n_inner: carried and captured values */
    int64_t done;
    int32_t *values; /* n_inner values: the operands of the next iteration */
    int32_t condition, counter;
    bool own;        /* an iteration computed `values`, `condition` and `counter`, and nothing else reads them */
    ln_list scanned; /* int32_t: the values to stack so far, iteration after iteration */
} loop;

static int32_t operand(const ln_work_node *node, int32_t i) { return i < node->n_inputs ? node->inputs[i] : -1; }

static linnet_status append_scanned(ln_work *w, loop *l, int32_t value) {
    int32_t *slot = ln_list_add(w, &l->scanned, sizeof *slot);
    if (slot == NULL) return ln_work_no_memory(w);
    *slot = value;
    return LINNET_OK;
}

static linnet_status too_long(ln_work *w, int most) {
    ln_fail(w->error, LINNET_TOO_LARGE, "a loop has more iterations than can be planned");
    ln_expected(w->error, "at most %d", most);
    return ln_hint(w->error, "split the loop: call the model from a loop in your own program");
}

/* Creates one node for the remaining iterations. It is processed again when `awaited` has been computed. */
static linnet_status wait(ln_work *w, const loop *l, int32_t awaited) {
    const ln_work_node *from = l->node;
    if (l->done >= MOST_SEGMENTS) return too_long(w, MOST_SEGMENTS);
    const int32_t n = 2 + l->n_inner + 1 + l->scanned.count;
    ln_work_node *node = ln_work_new_node(w, from->op, from->attributes, from->name, from->index, n, from->n_outputs);
    if (node == NULL) return ln_work_no_memory(w);
    node->inputs[0] = operand(from, 0);
    node->inputs[1] = l->condition;
    memcpy(node->inputs + 2, l->values, (size_t)l->n_inner * sizeof *l->values);
    node->inputs[2 + l->n_inner] = l->counter;
    if (l->scanned.count > 0)
        memcpy(node->inputs + 3 + l->n_inner, l->scanned.items, (size_t)l->scanned.count * sizeof(int32_t));
    memcpy(node->outputs, from->outputs, (size_t)from->n_outputs * sizeof *node->outputs);
    node->state = LN_NODE_WAITING;
    ln_work_value *v = ln_value_at(w, awaited);
    if (v->undecided)
        return ln_fail(w->error, LINNET_UNKNOWN_SHAPE, "the number of iterations of a loop depends on data");
    if (v->known) v->wanted = true;
    return ln_work_append(w, node);
}

/* Returns the value and counts one more reader. */
static int32_t once(ln_work *w, int32_t value) {
    if (value >= 0) ln_value_at(w, value)->readers = 1;
    return value;
}

static linnet_status iterate(ln_work *w, loop *l) {
    const ln_function *f = l->body;
    int32_t *slots = ln_pool_array(&w->pool, (int64_t)f->n_inputs + f->n_outputs, sizeof *slots);
    if (slots == NULL) return ln_work_no_memory(w);
    ln_work_node call = *l->node;
    call.inputs = slots;
    call.outputs = slots + f->n_inputs;
    call.n_inputs = f->n_inputs;
    call.n_outputs = f->n_outputs;
    const bool conditional = l->condition >= 0;
    slots[0] = l->counter;
    slots[1] = conditional ? l->condition : once(w, ln_fold_scalar(w, l->node->name, LINNET_BOOL, 1));
    if (slots[1] < 0) return ln_work_no_memory(w);
    memcpy(slots + 2, l->values, (size_t)l->n_inner * sizeof *slots);
    for (int32_t o = 0; o < f->n_outputs; ++o) {
        const int32_t scan = o - 1 - l->n_carried;
        call.outputs[o] = -1;
        if ((o == 0 && !conditional) || (scan >= 0 && l->node->outputs[l->n_carried + scan] < 0)) continue;
        const ln_value *declared = &f->values[f->outputs[o]];
        ln_tensor t;
        ln_declared(declared, &t);
        if ((call.outputs[o] = ln_work_add_value(w, declared->name, &t)) < 0) return ln_work_no_memory(w);
        ln_value_at(w, call.outputs[o])->readers = 1;
    }
    linnet_status status = ln_inline(w, ((const ln_while_attributes *)l->node->attributes)->body_function, &call, 0);
    for (int32_t c = 0; l->own && c < l->n_carried; ++c) ln_work_release(w, l->values[c]);
    if (l->own || !conditional) ln_work_release(w, slots[1]);
    if (l->own) ln_work_release(w, l->counter);
    l->own = true;
    if (conditional) l->condition = call.outputs[0];
    memcpy(l->values, call.outputs + 1, (size_t)l->n_carried * sizeof *l->values);
    for (int32_t s = 0; status == LINNET_OK && s < l->n_scans; ++s)
        status = append_scanned(w, l, call.outputs[1 + l->n_carried + s]);
    if (status != LINNET_OK) return status;
    l->counter = once(w, ln_fold_scalar(w, l->node->name, LINNET_I64, ++l->done));
    return l->counter < 0 ? ln_work_no_memory(w) : LINNET_OK;
}

static linnet_status infer(ln_work *w, ln_work_node *node) {
    return node == NULL ? ln_work_no_memory(w) : ln_infer_node(w, node);
}

/* Stacked output s of a loop without iterations: empty, with 0 as its first dimension. */
static linnet_status empty(ln_work *w, const loop *l, int32_t s, int32_t output) {
    ln_tensor element;
    ln_declared(&l->body->values[l->body->outputs[1 + l->n_carried + s]], &element);
    if (element.rank >= LN_MAX_RANK)
        return ln_fail(w->error, LINNET_UNSUPPORTED, "the stacked output of a loop has more than 8 dimensions");
    ln_work_value *v = ln_value_at(w, output);
    const bool found = v->tensor.rank == element.rank + 1; /* body.c has inferred the shape of the result */
    v->tensor.dtype = element.dtype;
    v->tensor.quant = element.quant;
    v->tensor.rank = (int8_t)(element.rank < 0 ? 1 : element.rank + 1);
    v->tensor.dims[0] = 0;
    for (int d = 1; d < v->tensor.rank; ++d)
        v->tensor.dims[d] = ln_max(ln_max(found ? v->tensor.dims[d] : 0, element.dims[d - 1]), 0);
    const int32_t nothing = ln_fold_scalar(w, v->name, LINNET_I64, 0); /* an empty constant needs a data pointer that is
                                                                          not NULL */
    if (nothing < 0) return ln_work_no_memory(w);
    v = ln_value_at(w, output);
    ln_set_layout(&v->tensor, LN_LAYOUT_DENSE);
    v->host = v->tensor.data = ln_value_at(w, nothing)->host;
    v->known = true;
    v->bounded = 0;
    return LINNET_OK;
}

static linnet_status stack(ln_work *w, const loop *l, int32_t s, int32_t output) {
    static const int64_t zero = 0;
    static const ln_copy_attributes unsqueeze = {.kind = LN_COPY_KIND_UNSQUEEZE, .axes = {&zero, 1}},
                                    concat = {.kind = LN_COPY_KIND_CONCAT};
    const ln_work_node *from = l->node;
    ln_work_node *joined = ln_work_copy(w, &concat, from->name, from->index, (int32_t)l->done);
    if (joined == NULL) return ln_work_no_memory(w);
    joined->outputs[0] = output;
    for (int64_t i = 0; i < l->done; ++i) {
        const int32_t element = ((const int32_t *)l->scanned.items)[i * l->n_scans + s];
        const ln_tensor like = ln_value_at(w, element)->tensor;
        const int32_t row = ln_work_add_value(w, from->name, &like);
        ln_work_node *node = ln_work_copy(w, &unsqueeze, from->name, from->index, 1);
        if (row < 0 || node == NULL) return ln_work_no_memory(w);
        node->inputs[0] = element;
        node->outputs[0] = joined->inputs[i] = row;
        const linnet_status status = infer(w, node);
        if (status != LINNET_OK) return status;
        ln_work_release(w, element);
        once(w, row);
    }
    const linnet_status status = infer(w, joined);
    for (int64_t i = 0; status == LINNET_OK && i < l->done; ++i) ln_work_release(w, joined->inputs[i]);
    return status;
}

static linnet_status finish(ln_work *w, const loop *l) {
    linnet_status status = LINNET_OK;
    for (int32_t o = 0; status == LINNET_OK && o < l->node->n_outputs; ++o) {
        const int32_t to = l->node->outputs[o];
        if (to < 0) continue;
        if (o < l->n_carried)
            status = infer(w, ln_work_identity(w, l->node->name, l->values[o], to));
        else if (l->done == 0)
            status = empty(w, l, o - l->n_carried, to);
        else
            status = stack(w, l, o - l->n_carried, to);
    }
    for (int32_t c = 0; status == LINNET_OK && l->own && c < l->n_carried; ++c) ln_work_release(w, l->values[c]);
    return status;
}

/* Reads a number that decides whether another iteration runs. If a run must compute the number, *number stays as it is,
   and *awaited becomes the value, unless *awaited names another value already. */
static linnet_status read_number(ln_work *w, int32_t value, const char *which, int64_t *number, int32_t *awaited) {
    if (value < 0) return LINNET_OK;
    const ln_work_value *v = ln_value_at(w, value);
    if (!v->known || v->tensor.data == NULL) {
        if (*awaited < 0) *awaited = value;
        return LINNET_OK;
    }
    if (ln_count(&v->tensor) != 1)
        return ln_fail(w->error, LINNET_SHAPE_MISMATCH, "the %s of a loop must have exactly one element", which);
    *number = ln_load_i64(v->tensor.data, v->tensor.dtype, 0);
    return LINNET_OK;
}

/* The trip count or the condition alone may end the loop, so both are read before the loop waits for one of them. */
static linnet_status advance(ln_work *w, loop *l) {
    const int32_t trips = operand(l->node, 0);
    for (;;) {
        int64_t most = INT64_MAX, holds = 1;
        int32_t awaited = -1;
        linnet_status status = read_number(w, trips, "trip count", &most, &awaited);
        if (status == LINNET_OK) status = read_number(w, l->condition, "condition", &holds, &awaited);
        if (status != LINNET_OK) return status;
        if (l->done >= most || !holds) return finish(w, l);
        if (awaited >= 0) return wait(w, l, awaited);
        if (l->done >= MOST_TRIPS) return too_long(w, MOST_TRIPS);
        status = iterate(w, l);
        if (status != LINNET_OK) return status;
    }
}

linnet_status ln_unroll(ln_work *w, ln_work_node *node) {
    const ln_while_attributes *a = node->attributes;
    loop l = {.node = node, .body = &w->model->functions[a->body_function], .n_carried = (int32_t)a->carried};
    l.n_inner = l.body->n_inputs - 2;
    l.n_scans = node->n_outputs - l.n_carried;
    l.condition = operand(node, 1);
    l.counter = operand(node, 2 + l.n_inner);
    l.values = ln_pool_array(&w->pool, l.n_inner, sizeof *l.values);
    if (l.values == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < l.n_inner; ++i) l.values[i] = operand(node, 2 + i);
    if (l.counter < 0)
        l.counter = ln_fold_scalar(w, node->name, LINNET_I64, 0);
    else
        l.done = ln_load_i64(ln_value_at(w, l.counter)->tensor.data, LINNET_I64, 0);
    linnet_status status = l.counter < 0 ? ln_work_no_memory(w) : LINNET_OK;
    for (int32_t i = 3 + l.n_inner; status == LINNET_OK && i < node->n_inputs; ++i)
        status = append_scanned(w, &l, node->inputs[i]);
    if (status == LINNET_OK) status = advance(w, &l);
    if (status != LINNET_OK && w->error != NULL && w->error->op[0] == 0) ln_at_node(w->error, node->index, node->name);
    ln_memory_free(w->memory, l.scanned.items, (size_t)l.scanned.capacity * sizeof(int32_t));
    return status;
}
