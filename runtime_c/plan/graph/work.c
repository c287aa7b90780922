/* work.c - the graph during planning: its lists, new nodes and values, dead code, snapshots.
 * All of it is temporary except blobs, which hold folded values (fold.c) and may outlive the planning. */
#include "plan/graph/work.h"

#include <string.h>

void ln_work_init(ln_work *w, linnet_model *model, ln_memory *temporary, ln_memory *persistent, linnet_error *error) {
    memset(w, 0, sizeof *w);
    w->model = model;
    w->memory = temporary;
    w->persistent = persistent;
    w->error = error;
    ln_pool_init(&w->pool, temporary);
}

void ln_blob_free(ln_work *w, ln_blob *blob) {
    if (blob->data == NULL || blob->kept) return;
    ln_memory_free(w->persistent, blob->data, blob->size);
    if (w->budget != NULL) w->budget->folded -= blob->size;
    *blob = (ln_blob){0};
}

static void list_free(ln_work *w, ln_list *list, size_t item) {
    ln_memory_free(w->memory, list->items, (size_t)list->capacity * item);
    memset(list, 0, sizeof *list);
}

void ln_work_free(ln_work *w) {
    if (w->memory == NULL) return;
    for (int32_t i = 0; i < w->blobs.count; ++i) ln_blob_free(w, (ln_blob *)w->blobs.items + i);
    for (int32_t i = 0; i < w->bodies.count; ++i) {
        ln_work *body = ((ln_work **)w->bodies.items)[i];
        if (body != NULL) ln_work_free(body);
    }
    list_free(w, &w->bodies, sizeof(ln_work *));
    list_free(w, &w->values, sizeof(ln_work_value));
    list_free(w, &w->nodes, sizeof(ln_work_node *));
    list_free(w, &w->blobs, sizeof(ln_blob));
    list_free(w, &w->buffers, sizeof(ln_work_buffer));
    list_free(w, &w->parallel.forks, sizeof(ln_work_fork));
    ln_memory_free(w->memory, w->homes.of, (size_t)w->homes.room * sizeof *w->homes.of);
    list_free(w, &w->offload.claims, sizeof(ln_work_claim *));
    list_free(w, &w->offload.moves, sizeof(ln_work_move));
    ln_pool_free(&w->pool);
    memset(w, 0, sizeof *w);
}

linnet_status ln_work_no_memory(ln_work *w) {
    ln_fail(w->error, LINNET_OUT_OF_MEMORY, "cannot allocate memory for planning");
    return ln_hint(w->error, "close other sessions, or plan for smaller shapes");
}

void *ln_list_add(ln_work *w, ln_list *list, size_t item) {
    if (list->count == list->capacity) {
        const int32_t capacity = list->capacity ? 2 * list->capacity : 32;
        void *items = capacity > (1 << 28) ? NULL : ln_memory_alloc(w->memory, (size_t)capacity * item);
        if (items == NULL) return NULL;
        if (list->count) memcpy(items, list->items, (size_t)list->count * item);
        ln_memory_free(w->memory, list->items, (size_t)list->capacity * item);
        list->items = items;
        list->capacity = capacity;
    }
    void *result = (char *)list->items + (size_t)list->count++ * item;
    memset(result, 0, item);
    return result;
}

linnet_status ln_work_find_spare(ln_work *w) {
    w->spare.values = ln_pool_array(&w->pool, w->values.count, sizeof *w->spare.values);
    if (w->spare.values == NULL) return ln_work_no_memory(w);
    w->spare.n = w->values.count;
    for (int32_t i = 0; i < w->spare.n; ++i) w->spare.values[i] = ln_value_at(w, i)->slot != LN_SLOT_KEPT;
    for (int32_t i = 0; i < w->n_fetches; ++i)
        if (w->fetches[i] >= 0) w->spare.values[w->fetches[i]] = false;
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        for (int32_t k = 0; k < node->n_inputs + node->n_outputs; ++k) {
            const int32_t v = k < node->n_inputs ? node->inputs[k] : node->outputs[k - node->n_inputs];
            if (v >= 0) w->spare.values[v] = false;
        }
    }
    return LINNET_OK;
}

int32_t ln_work_add_values(ln_work *w, int32_t n, int slot) {
    int32_t first = w->values.count;
    for (int32_t i = 0, row = 0; n > 0 && row < n && i < w->spare.n; ++i) {
        row = w->spare.values[i] && ln_value_at(w, i)->slot == slot ? row + 1 : 0;
        if (row == n) first = i + 1 - n;
    }
    for (int32_t i = first; i < first + n; ++i) {
        if (i == w->values.count && ln_list_add(w, &w->values, sizeof(ln_work_value)) == NULL) return -1;
        ln_work_value *v = ln_value_at(w, i);
        *v = (ln_work_value){.slot = (uint8_t)slot, .variable = -1, .input = -1};
        v->blob = v->readers = -1;
        if (i < w->spare.n) w->spare.values[i] = false;
    }
    return first;
}

int32_t ln_work_add_value(ln_work *w, const char *name, const ln_tensor *like) {
    const int32_t at = ln_work_add_values(w, 1, LN_SLOT_SINGLE);
    if (at < 0) return -1;
    ln_work_value *v = ln_value_at(w, at);
    v->name = name;
    if (like != NULL) {
        v->tensor = *like;
        v->tensor.data = NULL;
    }
    return at;
}

int32_t ln_work_twin(ln_work *w, int32_t value) {
    const ln_tensor like = ln_value_at(w, value)->tensor; /* a copy, because adding a value may move all values */
    const int32_t at = ln_work_add_value(w, ln_value_at(w, value)->name, &like);
    if (at >= 0) ln_value_at(w, at)->known = true;
    return at;
}

ln_work_node *ln_work_new_node(ln_work *w, const ln_op *op, const void *attributes, const char *name, int32_t index,
                               int32_t n_inputs, int32_t n_outputs) {
    ln_work_node *node = ln_pool_alloc(&w->pool, sizeof *node);
    int32_t *slots = ln_pool_array(&w->pool, (int64_t)n_inputs + n_outputs, sizeof *slots);
    if (node == NULL || slots == NULL) return NULL;
    node->op = op;
    node->attributes = attributes;
    node->name = name;
    node->index = index;
    node->n_inputs = n_inputs;
    node->n_outputs = n_outputs;
    node->inputs = slots;
    node->outputs = slots + n_inputs;
    node->inner = -1;
    return node;
}

linnet_status ln_work_append(ln_work *w, ln_work_node *node) {
    ln_work_node **slot = ln_list_add(w, &w->nodes, sizeof *slot);
    if (slot == NULL) return ln_work_no_memory(w);
    *slot = node;
    for (int32_t k = 0; k < ln_slots(node); ++k) /* keeps the values' data, because a step reads them */
        if (node->inputs[k] >= 0) ln_value_at(w, node->inputs[k])->readers = -1;
    return LINNET_OK;
}

ln_work_node **ln_work_take_nodes(ln_work *w, int32_t *n) {
    ln_work_node **taken = ln_pool_array(&w->pool, w->nodes.count, sizeof *taken);
    if (taken == NULL) return NULL;
    *n = w->nodes.count;
    if (*n > 0) memcpy(taken, w->nodes.items, (size_t)*n * sizeof *taken);
    w->nodes.count = 0;
    return taken;
}

int32_t *ln_find_makers(ln_work *w) {
    int32_t *makers = ln_pool_array(&w->pool, w->values.count, sizeof *makers);
    if (makers == NULL) return NULL;
    for (int32_t v = 0; v < w->values.count; ++v) makers[v] = -1;
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        for (int32_t o = 0; node->state == LN_NODE_READY && o < node->n_outputs; ++o)
            if (node->outputs[o] >= 0) makers[node->outputs[o]] = i;
    }
    return makers;
}

ln_work_node *ln_work_copy(ln_work *w, const ln_copy_attributes *attributes, const char *name, int32_t index,
                           int32_t n_inputs) {
    return ln_work_new_node(w, &ln_ops[LN_OP_COPY], attributes, name, index, n_inputs, 1);
}

ln_work_node *ln_work_identity(ln_work *w, const char *name, int32_t from, int32_t to) {
    static const ln_copy_attributes identity = {.kind = LN_COPY_KIND_IDENTITY};
    ln_work_node *node = ln_work_copy(w, &identity, name, -1, 1);
    if (node == NULL) return NULL;
    node->inputs[0] = from;
    node->outputs[0] = to;
    node->state = LN_NODE_READY;
    return node;
}

bool ln_is_assign(const ln_work_node *node) { return node->op != NULL && (node->op->flags & LN_OP_WRITES); }

linnet_status ln_work_sweep(ln_work *w) {
    for (int32_t i = 0; i < w->values.count; ++i) {
        ln_work_value *v = ln_value_at(w, i);
        v->uses = 0;
        v->exported = v->fetched = false;
    }
    for (int32_t i = 0; i < w->n_fetches; ++i)
        if (w->fetches[i] >= 0) ln_value_at(w, w->fetches[i])->fetched = true;
    w->waiting = 0;
    for (int32_t i = w->nodes.count - 1; i >= 0; --i) {
        ln_work_node *node = ln_node_at(w, i);
        if (node->state == LN_NODE_GONE) continue;
        bool needed = ln_is_assign(node) || node->n_outputs == 0 || node->checks;
        for (int o = 0; o < node->n_outputs; ++o) {
            if (node->outputs[o] < 0) continue;
            const ln_work_value *v = ln_value_at(w, node->outputs[o]);
            if (v->uses > 0 || v->exported || v->fetched) needed = true;
        }
        if (!needed) {
            node->state = LN_NODE_GONE;
            continue;
        }
        if (node->state == LN_NODE_WAITING) ++w->waiting;
        for (int k = 0; k < ln_slots(node); ++k) {
            if (node->inputs[k] < 0) continue;
            ln_work_value *v = ln_value_at(w, node->inputs[k]);
            if (node->state == LN_NODE_READY)
                ++v->uses;
            else
                v->exported = true; /* set also if both the producer and the reader wait; the next segment finds out
                                       whether the value is needed */
        }
    }
    int32_t kept = 0;
    ln_work_node **nodes = w->nodes.items;
    for (int32_t i = 0; i < w->nodes.count; ++i)
        if (nodes[i]->state != LN_NODE_GONE) nodes[kept++] = nodes[i];
    w->nodes.count = kept;
    return LINNET_OK;
}

linnet_status ln_work_charge(ln_work *w, uint64_t n) {
    ln_budget *b = w->budget;
    b->nodes += n;
    if (b->trial > 0 && b->nodes > b->trial)
        return ln_fail(w->error, LINNET_TOO_LARGE, "a loop is too large to be evaluated as a constant");
    if (b->nodes > b->most_nodes) {
        ln_fail(w->error, LINNET_TOO_LARGE, "calls and loops expand to too many nodes");
        ln_expected(w->error, "at most %llu nodes and values, counted for each call and iteration",
                    (unsigned long long)b->most_nodes);
        return ln_hint(w->error, "reduce the number of nested calls, or make the number of iterations an input");
    }
    return LINNET_OK;
}

linnet_status ln_work_snapshot(const ln_work *from, ln_work *to, ln_memory *memory, linnet_error *error) {
    ln_work_init(to, from->model, memory, from->persistent, error);
    to->kind = LN_WORK_SEGMENT;
    to->settings = from->settings;
    to->n_fetches = from->n_fetches;
    to->fetches = ln_pool_array(&to->pool, from->n_fetches, sizeof *to->fetches);
    if (to->fetches == NULL) return ln_work_no_memory(to);
    memcpy(to->fetches, from->fetches, (size_t)from->n_fetches * sizeof *to->fetches);
    for (int32_t i = 0; i < from->values.count; ++i) {
        ln_work_value *v = ln_list_add(to, &to->values, sizeof *v);
        if (v == NULL) return ln_work_no_memory(to);
        *v = *ln_value_at(from, i);
        v->blob = v->readers = -1;
    }
    for (int32_t i = 0; i < from->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(from, i);
        if (node->state != LN_NODE_WAITING) continue;
        ln_work_node *copy =
            ln_work_new_node(to, node->op, node->attributes, node->name, node->index, node->n_inputs, node->n_outputs);
        if (copy == NULL) return ln_work_no_memory(to);
        copy->scope = node->scope;
        memcpy(copy->inputs, node->inputs, (size_t)node->n_inputs * sizeof *copy->inputs);
        memcpy(copy->outputs, node->outputs, (size_t)node->n_outputs * sizeof *copy->outputs);
        const linnet_status status = ln_work_append(to, copy);
        if (status != LINNET_OK) return status;
    }
    return LINNET_OK;
}
