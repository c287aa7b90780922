/* buffers.c - decides which values share memory: views, concatenations that are written in place, and pointwise results
   that overwrite operands that are no longer needed. The result is a list of buffers with lifetimes, which the memory
   planner gives offsets. */
#include "plan/graph/buffers.h"

#include "kernel/common/copy_kinds.h"
#include "plan/graph/device_nodes.h"
#include "plan/graph/views.h"
#include "plan/graph/work.h"

#include <string.h>

enum { NEVER = INT32_MAX };

typedef struct alias {
    ln_work *w;
    int32_t *last;      /* per value: position of the last node that reads it; -1: none; NEVER: it leaves the program */
    int32_t *next;      /* per value: next value in the same buffer; -1: there is none */
    int32_t *head;      /* per buffer: first value; grows with the buffers (at most one per value) */
    int32_t *variables; /* per variable: its buffer; -1: it has none */
    int32_t *branch; /* per value: the branch that computes it; 0: it is in no branch; NULL: the graph has no forks */
} alias;

static bool leaves(const ln_work_value *v) { return v->fetched || v->exported || v->committed; }

/* Puts the value into the buffer, which lasts as long as any of its values. */
static void attach(alias *a, int32_t value, int32_t buffer, int64_t offset) {
    const ln_work_value *v = ln_value_at(a->w, value);
    ln_work_buffer *b = ln_buffer_at(a->w, buffer);
    a->w->homes.of[value] = (ln_home){buffer, offset};
    a->next[value] = a->head[buffer];
    a->head[buffer] = value;
    if (a->last[value] > b->last) b->last = a->last[value];
    if ((v->fetched || v->exported) && b->kind == LN_REGION_ARENA && ln_on_cpu(b->device)) b->kind = LN_REGION_IO;
}

static linnet_status new_buffer(alias *a, int kind, uint8_t device, uint64_t size, int32_t position, int32_t *out) {
    ln_work_buffer *b = ln_list_add(a->w, &a->w->buffers, sizeof *b);
    if (b == NULL) return ln_work_no_memory(a->w);
    b->kind = (uint8_t)kind;
    b->device = device;
    b->size = size;
    b->first = b->last = position;
    *out = a->w->buffers.count - 1;
    a->head[*out] = -1;
    return LINNET_OK;
}

/* Tells whether steps of this program may write the memory. This requires that nothing outside the program uses it. */
static bool owned(const ln_work_buffer *b) { return b->kind == LN_REGION_ARENA || b->kind == LN_REGION_IO; }

/* Tells whether output y would fill the whole buffer, and the buffer holds no input and no other output. */
static bool alone(const alias *a, const ln_work_value *y, int32_t buffer) {
    for (int32_t v = a->head[buffer]; v >= 0; v = a->next[v])
        if (ln_value_at(a->w, v)->fetched || ln_value_at(a->w, v)->input >= 0) return false;
    return ln_buffer_at(a->w, buffer)->size == ln_known_bytes(&y->tensor);
}

static bool try_view(alias *a, ln_work_node *node) {
    ln_work *w = a->w;
    if (!ln_is_view(w, node) || w->homes.of[node->inputs[0]].buffer < 0) return false;
    const ln_home from = w->homes.of[node->inputs[0]];
    const ln_work_value *x = ln_value_at(w, node->inputs[0]);
    const ln_work_buffer *b = ln_buffer_at(w, from.buffer);
    for (int o = 0; o < node->n_outputs; ++o) {
        if (node->outputs[o] < 0) continue;
        const ln_work_value *y = ln_value_at(w, node->outputs[o]);
        if (y->device != x->device || b->device != y->device) return false;
        if (leaves(y) && !owned(b)) return false; /* inputs and variables are returned as copies */
        if (y->fetched && x->input >= 0) return false;
        if (y->fetched && w->request.separate && !alone(a, y, from.buffer)) return false;
    }
    for (int o = 0; o < node->n_outputs; ++o) {
        if (node->outputs[o] < 0) continue;
        attach(a, node->outputs[o], from.buffer, from.offset + ln_view_offset(w, node, o));
    }
    node->state = LN_NODE_GONE;
    return true;
}

/* Concatenates without a copy: if each input is contiguous in the output, its buffer becomes a part of the output's
 * buffer.
 */
static linnet_status try_concat(alias *a, ln_work_node *node, int32_t position, bool *done) {
    ln_work *w = a->w;
    *done = false;
    if (!ln_is_family(node, LN_FAMILY_COPY) || !ln_copy_is(node->attributes, LN_COPY_KIND_CONCAT)) return LINNET_OK;
    const ln_copy_attributes *attributes = node->attributes;
    const ln_work_value *y = ln_value_at(w, node->outputs[0]);
    const int axis = ln_axis(attributes->axis, y->tensor.rank);
    if (axis < 0) return LINNET_OK;
    int64_t at = 0;
    for (int k = 0; k < node->n_inputs; ++k) {
        const ln_work_value *x = ln_value_at(w, node->inputs[k]);
        const ln_home home = w->homes.of[node->inputs[k]];
        if (x->host != NULL || home.buffer < 0 || !ln_on_cpu(x->device) || !ln_on_cpu(y->device)) return LINNET_OK;
        const ln_work_buffer *b = ln_buffer_at(w, home.buffer);
        if (b->kind != LN_REGION_ARENA || home.offset != 0 || b->size != ln_known_bytes(&x->tensor)) return LINNET_OK;
        if (b->last == NEVER || b->size == 0) return LINNET_OK;
        for (int j = 0; j < k; ++j)
            if (w->homes.of[node->inputs[j]].buffer == home.buffer) return LINNET_OK;
        for (int d = 0; d < x->tensor.rank; ++d)
            if (x->tensor.dims[d] != 1 && x->tensor.strides[d] != y->tensor.strides[d]) return LINNET_OK;
        if (!ln_element_aligned(y->tensor.dtype, at * y->tensor.strides[axis], LN_ALIGNMENT)) return LINNET_OK;
        at += x->tensor.dims[axis];
    }
    int32_t whole;
    linnet_status status = new_buffer(a, LN_REGION_ARENA, LN_CPU, ln_known_bytes(&y->tensor), position, &whole);
    if (status != LINNET_OK) return status;
    at = 0;
    for (int k = 0; k < node->n_inputs; ++k) {
        const int32_t part = w->homes.of[node->inputs[k]].buffer;
        const ln_tensor *t = &ln_value_at(w, node->outputs[0])->tensor;
        const int64_t base = ln_offset_of_element(t->dtype, at * t->strides[axis]);
        if (ln_buffer_at(w, part)->first < ln_buffer_at(w, whole)->first)
            ln_buffer_at(w, whole)->first = ln_buffer_at(w, part)->first;
        at += ln_value_at(w, node->inputs[k])->tensor.dims[axis];
        for (int32_t v = a->head[part], next; v >= 0; v = next) {
            next = a->next[v];
            attach(a, v, whole, base + w->homes.of[v].offset);
        }
        a->head[part] = -1;
        ln_buffer_at(w, part)->size = 0;
        ln_buffer_at(w, part)->kind = LN_REGION_NONE;
    }
    attach(a, node->outputs[0], whole, 0);
    node->state = LN_NODE_GONE;
    *done = true;
    return LINNET_OK;
}

/* A map program may overwrite an operand only if it loads everything before its first store. */
static bool loads_before_stores(const ln_map_attributes *map) {
    bool stored = false;
    for (int64_t i = 0; i + 5 <= map->program.n; i += 5) {
        const int64_t op = map->program.v[i];
        if (op == LN_MAP_STORE || op == LN_MAP_STORE_QUANTIZED) stored = true;
        if (stored && (op == LN_MAP_LOAD || op == LN_MAP_LOAD_DEQUANTIZED || op == LN_MAP_TABLE)) return false;
    }
    return true;
}

/* Byte range of a tensor with positive strides. */
static int64_t extent(const ln_tensor *t) {
    int64_t last = 0;
    for (int d = 0; d < t->rank; ++d) {
        if (t->dims[d] == 0) return 0;
        last += (t->dims[d] - 1) * t->strides[d];
    }
    return (int64_t)ln_bytes_of(t->dtype, last + 1);
}

/* Tells whether a device runs the node as a part of a longer step. The device may then read and write the node's
 * operands at any time during that step. */
static bool fused(const ln_work_node *node) { return node->claim != NULL && node->claim->is.fused; }

/* Tells whether a device keeps both values in the same way: each element at the same offset, in a buffer that has
 * nothing else, because a kernel may write the padding behind its output. */
static bool alike_on_device(const ln_work *w, int32_t x, int32_t y) {
    return ln_token_of(w, x) == ln_token_of(w, y) && w->homes.of[x].offset == 0 &&
           ln_buffer_at(w, w->homes.of[x].buffer)->size == ln_device_bytes(w, y);
}

/* Tells whether output o may be written over input k, whose last reader is this node. */
static bool may_overwrite(const alias *a, const ln_work_node *node, int o, int k, int32_t position) {
    const ln_work *w = a->w;
    if (node->inputs[k] < 0) return false;
    const ln_work_value *x = ln_value_at(w, node->inputs[k]), *y = ln_value_at(w, node->outputs[o]);
    const ln_home home = w->homes.of[node->inputs[k]];
    if (x->host != NULL || home.buffer < 0 || x->device != y->device) return false;
    const ln_work_buffer *b = ln_buffer_at(w, home.buffer);
    if (b->last != position || b->device != y->device) return false;
    if (!ln_same_strides(&x->tensor, &y->tensor)) return false;
    if (ln_dtype_bits(x->tensor.dtype) != ln_dtype_bits(y->tensor.dtype)) return false;
    if (!ln_on_cpu(y->device) && !alike_on_device(w, node->inputs[k], node->outputs[o])) return false;
    if ((y->fetched || y->exported) && (home.offset != 0 || b->size != ln_known_bytes(&y->tensor))) return false;
    const int64_t begin = home.offset, end = begin + extent(&x->tensor);
    for (int i = 0; i < ln_slots(node); ++i) {
        if (i == k || node->inputs[i] < 0) continue;
        const ln_work_value *other = ln_value_at(w, node->inputs[i]);
        const ln_home near = w->homes.of[node->inputs[i]];
        if (other->host != NULL || near.buffer != home.buffer) continue;
        if (near.offset == begin && ln_same_strides(&other->tensor, &x->tensor) &&
            ln_dtype_bits(other->tensor.dtype) == ln_dtype_bits(x->tensor.dtype) &&
            (ln_is_family(node, LN_FAMILY_MAP) || i >= node->n_inputs))
            continue; /* each element is read before the same element is written */
        if (near.offset < end && begin < near.offset + extent(&other->tensor)) return false;
    }
    for (int i = 0; i < o; ++i) /* an earlier output may already use this memory */
        if (node->outputs[i] >= 0 && w->homes.of[node->outputs[i]].buffer == home.buffer) return false;
    return true;
}

/* Puts the output over an operand whose last reader is this node, in the given buffer or (-1) in any buffer. */
static bool try_in_place(alias *a, const ln_work_node *node, int o, int32_t position, int32_t buffer) {
    ln_work *w = a->w;
    int first = 0, end = 0;
    if (node->op == NULL) return false;
    if (ln_on_device(node) &&
        (!ln_device_at(w, node->device)->limits.in_place || fused(node) || !ln_is_family(node, LN_FAMILY_MAP)))
        return false;
    if (node->map != NULL) {
        first = node->n_inputs;
        end = ln_slots(node);
        if (!loads_before_stores(node->map->attributes)) return false;
    } else if (node->op->flags & LN_OP_IN_PLACE) {
        const bool map = ln_is_family(node, LN_FAMILY_MAP);
        end = map ? node->n_inputs : 1;
        if (map ? !loads_before_stores(node->attributes) : o > 0) return false;
    }
    for (int k = first; k < end; ++k) {
        const int32_t over = node->inputs[k] >= 0 ? w->homes.of[node->inputs[k]].buffer : -1;
        if (over < 0 || (buffer >= 0 ? over != buffer : ln_buffer_at(w, over)->kind != LN_REGION_ARENA)) continue;
        if (!may_overwrite(a, node, o, k, position)) continue;
        attach(a, node->outputs[o], over, w->homes.of[node->inputs[k]].offset);
        return true;
    }
    return false;
}

/* Creates one buffer for all values bound to the variable. Its lifetime ends with the last reader of the old value. */
static linnet_status variable_buffer(alias *a, int32_t variable, uint64_t bytes, int32_t *buffer) {
    if ((*buffer = a->variables[variable]) >= 0) return LINNET_OK;
    const linnet_status status = new_buffer(a, LN_REGION_VARIABLE, LN_CPU, bytes, -1, buffer);
    if (status != LINNET_OK) return status;
    ln_buffer_at(a->w, *buffer)->offset = (uint64_t)variable;
    a->variables[variable] = *buffer;
    return LINNET_OK;
}

/* Writes a new value directly into its variable, if all readers of the old value and all nodes that can fail have run.
 */
static linnet_status try_update(alias *a, const ln_work_node *node, int o, int32_t position, bool *done) {
    const int32_t variable = ln_update_of(a->w, node->outputs[o]);
    *done = false;
    if (variable < 0 || position <= a->w->updates.last_failure) return LINNET_OK;
    int32_t buffer;
    const linnet_status status =
        variable_buffer(a, variable, ln_known_bytes(&ln_value_at(a->w, node->outputs[o])->tensor), &buffer);
    if (status != LINNET_OK) return status;
    const int32_t last = ln_buffer_at(a->w, buffer)->last;
    if (last < position) attach(a, node->outputs[o], buffer, 0);
    *done = last < position || (last == position && try_in_place(a, node, o, position, buffer));
    return LINNET_OK;
}

static linnet_status make_input_buffers(alias *a) {
    ln_work *w = a->w;
    for (int32_t i = 0; i < w->values.count; ++i) {
        const ln_work_value *v = ln_value_at(w, i);
        if (!v->known || (v->host != NULL && ln_on_cpu(v->device)) || w->homes.of[i].buffer >= 0) continue;
        int kind = LN_REGION_NONE;
        if (v->host != NULL || (v->variable >= 0 && !ln_on_cpu(v->device)))
            kind = LN_REGION_WEIGHTS;
        else if (v->variable >= 0)
            kind = LN_REGION_VARIABLE;
        else if (v->imported)
            kind = LN_REGION_IMPORT;
        else if (v->input >= 0)
            kind = LN_REGION_IO;
        if (kind == LN_REGION_NONE || (a->last[i] < 0 && !v->exported && !v->committed)) continue;
        int32_t buffer;
        const linnet_status status = kind == LN_REGION_VARIABLE
                                         ? variable_buffer(a, v->variable, ln_known_bytes(&v->tensor), &buffer)
                                         : new_buffer(a, kind, v->device, ln_device_bytes(w, i), NEVER, &buffer);
        if (status != LINNET_OK) return status;
        if (kind == LN_REGION_IMPORT)
            ln_buffer_at(w, buffer)->offset = (uint64_t)(w->kind == LN_WORK_BODY ? v->input : i);
        attach(a, i, buffer, 0);
    }
    return LINNET_OK;
}

/* Tells whether the value is a constant that the node's claim packs. The device then reads it from the host's memory
 * when a session is created, and no run reads it. */
static bool unread(const ln_work *w, const ln_work_node *node, int32_t value) {
    return node->claim != NULL && node->claim->is.packs && ln_value_at(w, value)->host != NULL;
}

/* Returns the position until which the value must be kept for node i. A value from outside the node's branch is kept
 * until the fork ends, because other branches may run later and read it. */
static int32_t needed_until(const alias *a, int32_t i, int32_t value) {
    const ln_work_node *node = ln_node_at(a->w, i);
    if (node->branch == 0 || a->branch[value] == node->branch) return i;
    return ln_fork_at(a->w, node->fork)->end;
}

static linnet_status find_branches(alias *a) {
    ln_work *w = a->w;
    if (w->parallel.forks.count == 0) return LINNET_OK;
    a->branch = ln_pool_array(&w->pool, w->values.count, sizeof *a->branch);
    if (a->branch == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < w->nodes.count; ++i)
        for (int32_t o = 0; o < ln_node_at(w, i)->n_outputs; ++o)
            if (ln_node_at(w, i)->outputs[o] >= 0) a->branch[ln_node_at(w, i)->outputs[o]] = ln_node_at(w, i)->branch;
    return LINNET_OK;
}

/* Gives a buffer that only one branch uses to that branch. Any other buffer that a branch reads or writes lives at
 * least until the fork ends, so none of these buffers share memory. */
static void find_owner(const ln_work *w, ln_work_buffer *b) {
    const ln_work_node *node = ln_node_at(w, b->first);
    const bool inside = node->branch > 0 && b->last < ln_fork_at(w, node->fork)->end;
    if (inside && ln_node_at(w, b->last)->branch == node->branch) b->branch = node->branch;
}

/* Makes the table of homes, in which no value has one yet. */
static linnet_status begin_homes(ln_work *w) {
    const int32_t n = w->values.count;
    if (n > w->homes.room) {
        ln_memory_free(w->memory, w->homes.of, (size_t)w->homes.room * sizeof *w->homes.of);
        w->homes.room = 0;
        if ((w->homes.of = ln_memory_alloc(w->memory, (size_t)n * sizeof *w->homes.of)) == NULL)
            return ln_work_no_memory(w);
        w->homes.room = n;
    }
    for (int32_t i = 0; i < n; ++i) w->homes.of[i] = (ln_home){.buffer = -1};
    w->homes.n = n;
    return LINNET_OK;
}

linnet_status ln_find_buffers(ln_work *w) {
    alias a = {.w = w};
    const int32_t n = w->values.count;
    linnet_status status = begin_homes(w);
    if (status != LINNET_OK) return status;
    const size_t bytes = ((size_t)4 * (size_t)n + 1 + (size_t)w->model->n_variables) * sizeof(int32_t);
    if ((status = find_branches(&a)) != LINNET_OK) return status;
    a.last = ln_memory_alloc(w->memory, bytes);
    if (a.last == NULL) return ln_work_no_memory(w);
    a.next = a.last + n;
    a.variables = a.next + n;
    a.head = a.variables + w->model->n_variables; /* concats add more buffers */
    for (int32_t i = 0; i < w->model->n_variables; ++i) a.variables[i] = -1;
    for (int32_t i = 0; i < n; ++i) {
        const ln_work_value *v = ln_value_at(w, i);
        a.last[i] = leaves(v) ? NEVER : -1;
        a.next[i] = -1;
    }
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (node->state != LN_NODE_READY) continue;
        for (int k = ln_is_assign(node); k < ln_slots(node); ++k)
            if (node->inputs[k] >= 0 && a.last[node->inputs[k]] != NEVER && !unread(w, node, node->inputs[k]))
                a.last[node->inputs[k]] =
                    (int32_t)ln_max(a.last[node->inputs[k]], needed_until(&a, i, node->inputs[k]));
    }
    status = make_input_buffers(&a);
    for (int32_t i = 0; i < w->nodes.count && status == LINNET_OK; ++i) {
        ln_work_node *node = ln_node_at(w, i);
        if (node->state != LN_NODE_READY) continue;
        bool done = false;
        if (ln_is_assign(node)) { /* the output of an assign is the new value, so it shares its home */
            const ln_work_value *x = ln_value_at(w, node->inputs[1]);
            const ln_home home = w->homes.of[node->inputs[1]];
            if (node->outputs[0] >= 0 && x->host == NULL) attach(&a, node->outputs[0], home.buffer, home.offset);
            if (node->outputs[0] >= 0 && x->host != NULL) ln_value_at(w, node->outputs[0])->host = x->host;
            continue;
        }
        const bool copy = ln_is_family(node, LN_FAMILY_COPY) && node->outputs[0] >= 0;
        if (copy && ((status = try_update(&a, node, 0, i, &done)) != LINNET_OK || done)) continue;
        if (try_view(&a, node)) continue;
        if (!w->settings.reference && ((status = try_concat(&a, node, i, &done)) != LINNET_OK || done)) continue;
        for (int o = 0; o < node->n_outputs && status == LINNET_OK; ++o) {
            /* A copy that stays on the device. */
            if (node->outputs[o] < 0 || w->homes.of[node->outputs[o]].buffer >= 0) continue;
            if (fused(node) && a.last[node->outputs[o]] <= node->claim->last) continue; /* it is never stored */
            if ((status = try_update(&a, node, o, i, &done)) != LINNET_OK || done) continue;
            if (!w->settings.reference && try_in_place(&a, node, o, i, -1)) continue;
            const ln_work_value *y = ln_value_at(w, node->outputs[o]);
            int32_t buffer;
            const int kind = ln_count(&y->tensor) < 0 ? LN_REGION_GROWN : LN_REGION_ARENA;
            status = new_buffer(&a, kind, y->device, ln_device_bytes(w, node->outputs[o]),
                                fused(node) ? node->claim->first : i, &buffer);
            if (status == LINNET_OK) attach(&a, node->outputs[o], buffer, 0);
        }
    }
    ln_memory_free(w->memory, a.last, bytes);
    for (int32_t i = 0; i < w->buffers.count && w->parallel.forks.count > 0 && status == LINNET_OK; ++i)
        if (ln_buffer_at(w, i)->kind == LN_REGION_ARENA) find_owner(w, ln_buffer_at(w, i));
    return status;
}

void ln_forget_buffers(ln_work *w) {
    w->homes.n = 0;
    for (int32_t i = 0; i < w->nodes.count; ++i) ln_node_at(w, i)->state = LN_NODE_READY;
    w->buffers.count = 0;
}
