/* contents.c - fills in the parts of a program other than its steps: the nodes that wait for a later segment, memory,
 * ports, and constants. pipeline.c builds a program, for the plan itself, for bodies and for later segments. */
#include "plan/compile/contents.h"

#include "plan/compile/operands.h"
#include "plan/compile/packed.h"
#include "plan/compile/program.h"

#include "base/sort.h"

#include <string.h>

void ln_program_free(ln_program *program) {
    if (program->memory == NULL) return;
    if (program->rest != NULL) ln_work_free(program->rest);
    ln_program_unpack(program);
    for (int32_t i = 0; i < program->n_steps; ++i)
        for (int k = 0; k < 2; ++k)
            if (program->steps[i].bodies[k] != NULL) ln_program_free(program->steps[i].bodies[k]);
    for (int32_t i = 0; i < program->n_blobs; ++i)
        ln_memory_free(program->memory, program->blobs[i].data, program->blobs[i].size);
    ln_pool_free(&program->pool);
    memset(program, 0, sizeof *program);
}

uint64_t ln_program_scratch(const ln_program *program, int threads) {
    return ln_thread_scratch(program) + program->scratch_thread * (uint64_t)threads;
}

static void fill_port(const ln_work *w, ln_port *port, int32_t value, int32_t index, const char *name) {
    const ln_work_value *v = ln_value_at(w, value);
    port->value = value;
    port->index = index;
    port->name = name;
    port->operand = ln_operand_of(w, value);
    port->tensor = v->tensor;
    port->tensor.data = NULL;
    port->bytes = ln_known_bytes(&v->tensor);
    port->dims_slot = -1;
    port->wanted = v->wanted;
}

/* Finds the slot for the true dims if the value's dims are only bounds. */
static void find_slot(const ln_work *w, ln_program *program, ln_port *port) {
    if (!ln_value_at(w, port->value)->bounded) return;
    for (int32_t i = 0; i < program->n_steps; ++i) {
        const ln_step *step = &program->steps[i];
        if (step->dims_slot < 0) continue;
        for (int o = 0; o < step->call.n_outputs; ++o)
            if (step->outputs[o].region == port->operand.region && step->outputs[o].offset == port->operand.offset)
                port->dims_slot = step->dims_slot + o;
    }
}

linnet_status ln_collect_ports(ln_work *w) {
    ln_program *program = w->result.program;
    int32_t exports = 0, inputs = 0, outputs = 0;
    for (int32_t i = 0; i < w->values.count; ++i) {
        const ln_work_value *v = ln_value_at(w, i);
        if (ln_home_of(w, i).buffer < 0) continue;
        exports += v->exported && (v->known || v->bounded);
        inputs += v->input >= 0 && !v->imported;
    }
    for (int32_t i = 0; i < w->n_fetches; ++i)
        if (w->fetches[i] >= 0 && (ln_value_at(w, w->fetches[i])->known || ln_value_at(w, w->fetches[i])->bounded))
            ++outputs;
    program->exports = ln_pool_array(&program->pool, exports, sizeof *program->exports);
    program->inputs = ln_pool_array(&program->pool, inputs, sizeof *program->inputs);
    program->outputs = ln_pool_array(&program->pool, outputs, sizeof *program->outputs);
    if (program->pool.failed) return ln_work_no_memory(w);
    for (int32_t i = 0; i < w->values.count; ++i) {
        const ln_work_value *v = ln_value_at(w, i);
        if (ln_home_of(w, i).buffer < 0) continue;
        if (v->exported && (v->known || v->bounded)) {
            ln_port *port = &program->exports[program->n_exports++];
            fill_port(w, port, i, -1, v->name);
            find_slot(w, program, port);
        }
        if (v->input < 0 || v->imported) continue;
        int32_t at = program->n_inputs++; /* in the order of the signature */
        for (; at > 0 && program->inputs[at - 1].index > v->input; --at) program->inputs[at] = program->inputs[at - 1];
        memset(&program->inputs[at], 0, sizeof *program->inputs);
        fill_port(w, &program->inputs[at], i, v->input, v->name);
    }
    for (int32_t i = 0; i < w->n_fetches; ++i) {
        if (w->fetches[i] < 0) continue;
        const ln_work_value *v = ln_value_at(w, w->fetches[i]);
        if (!v->known && !v->bounded) continue;
        ln_port *port = &program->outputs[program->n_outputs++];
        fill_port(w, port, w->fetches[i], i, v->name);
        find_slot(w, program, port);
    }
    return LINNET_OK;
}

/* The blobs that still exist, sorted by address. */
typedef struct blob_table {
    const void **blobs;
    int32_t count;
} blob_table;

static ln_blob *blob_at(const blob_table *t, int32_t i) { return (ln_blob *)(uintptr_t)t->blobs[i]; }

static bool lower_address(const void *a, const void *b) {
    return (uintptr_t)((const ln_blob *)a)->data < (uintptr_t)((const ln_blob *)b)->data;
}

static linnet_status sort_blobs(ln_work *w, blob_table *t) {
    t->count = 0;
    t->blobs = ln_pool_array(&w->pool, w->blobs.count, sizeof *t->blobs);
    if (t->blobs == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < w->blobs.count; ++i) {
        ln_blob *blob = (ln_blob *)w->blobs.items + i;
        if (blob->data != NULL) t->blobs[t->count++] = blob;
    }
    ln_sort(t->blobs, t->count, lower_address);
    return LINNET_OK;
}

/* If the pointer is in a blob, marks the blob as read. packed: the reader is a kernel that only rearranges it. */
static void mark(const blob_table *t, const void *pointer, bool packed) {
    int32_t low = 0, high = t->count; /* the first blob after the pointer */
    while (low < high) {
        const int32_t middle = (low + high) / 2;
        if ((uintptr_t)blob_at(t, middle)->data <= (uintptr_t)pointer)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0) return;
    ln_blob *blob = blob_at(t, low - 1);
    if ((uintptr_t)pointer - (uintptr_t)blob->data >= (blob->size ? blob->size : 1)) return;
    *(packed ? &blob->packed_only : &blob->kept) = true;
}

/* Marks what a step of a device reads, and the steps of its bodies. */
static void mark_device_step(const blob_table *t, const linnet_step *step) {
    const ln_call *call = &step->call;
    for (int k = 0; k < call->n_inputs + call->n_extra; ++k) mark(t, call->inputs[k].data, false);
    for (int k = 0; k < 2 && step->bodies[k] != NULL; ++k) {
        const linnet_body *body = step->bodies[k];
        for (int32_t i = 0; i < body->n_steps; ++i) mark_device_step(t, &body->steps[i]);
        for (int32_t o = 0; o < body->n_outputs; ++o) mark(t, body->tensors[body->n_inputs + o].data, false);
    }
}

static void mark_blobs(const ln_work *w, const ln_program *program, const blob_table *t) {
    for (int32_t i = 0; i < program->n_steps; ++i) {
        const ln_step *step = &program->steps[i];
        for (int k = 0; k < step->call.n_inputs + step->call.n_extra; ++k) {
            const bool packed = k < step->call.n_inputs && (step->call.packed_inputs >> k & 1);
            if (packed && step->stored >= 0) continue; /* the file has the packed form, so nothing reads the original */
            const bool only = packed && step->packed >= 0;
            mark(t, step->inputs[k].pointer, only);
            mark(t, step->call.inputs[k].data, only);
        }
        for (int32_t m = 0; LN_HAS_DEVICES && step->claim != NULL && m < step->claim->n; ++m)
            mark_device_step(t, &step->claim->steps[m]);
    }
    for (int32_t i = 0; i < program->n_outputs; ++i) mark(t, program->outputs[i].operand.pointer, false);
    for (int32_t i = 0; i < program->n_commits; ++i) mark(t, program->commits[i].operand.pointer, false);
    for (int d = 0; d <= program->n_devices; ++d)
        for (int32_t i = 0; i < program->devices[d].n_weights; ++i) mark(t, program->devices[d].weights[i].host, false);
    /* A waiting node may read the value, or its shape may depend on the value. */
    for (int32_t i = 0; program->rest != NULL && i < w->values.count; ++i) {
        const ln_work_value *v = ln_value_at(w, i);
        if (!v->exported) continue;
        mark(t, v->host, false);
        mark(t, v->tensor.data, false);
    }
}

/* A device runs the bodies of this node, so they have no programs that could take over their folded values. The graph
 * takes these over. */
static linnet_status take_blobs(ln_work *w, const ln_work_node *node) {
    linnet_status status = LINNET_OK;
    for (int k = 0; k < 2 && node->bodies[k] != NULL; ++k) {
        ln_work *b = node->bodies[k];
        while (b->blobs.count > 0) {
            ln_blob *to = ln_list_add(w, &w->blobs, sizeof *to);
            if (to == NULL) return ln_work_no_memory(w);
            *to = ((const ln_blob *)b->blobs.items)[--b->blobs.count];
        }
        for (int32_t i = 0; i < b->nodes.count && status == LINNET_OK; ++i) status = take_blobs(w, ln_node_at(b, i));
    }
    return status;
}

/* The program takes over folded values that its steps still read; the others are freed with the working graph. */
linnet_status ln_adopt_constants(ln_work *w) {
    ln_program *program = w->result.program;
    int32_t kept = 0;
    blob_table table;
    linnet_status status = LINNET_OK;
    for (int32_t i = 0; LN_HAS_DEVICES && i < w->nodes.count && status == LINNET_OK; ++i)
        if (ln_on_device(ln_node_at(w, i))) status = take_blobs(w, ln_node_at(w, i));
    if (status == LINNET_OK) status = sort_blobs(w, &table);
    if (status != LINNET_OK) return status;
    mark_blobs(w, program, &table);
    for (int32_t i = 0; i < table.count; ++i) {
        ln_blob *blob = blob_at(&table, i);
        blob->packed_only &= !blob->kept;
        blob->kept |= blob->packed_only;
        if (blob->kept) ++kept;
    }
    program->blobs = ln_pool_array(&program->pool, kept, sizeof *program->blobs);
    if (program->blobs == NULL) {
        for (int32_t i = 0; i < w->blobs.count; ++i) ((ln_blob *)w->blobs.items + i)->kept = false;
        return ln_work_no_memory(w);
    }
    for (int32_t i = 0; i < w->blobs.count; ++i) {
        const ln_blob *blob = (ln_blob *)w->blobs.items + i;
        if (!blob->kept) continue;
        program->blobs[program->n_blobs++] = *blob;
        *(blob->packed_only ? &program->packed_only : &program->constants) +=
            ln_round_up(blob->size ? blob->size : 1, LN_ALIGNMENT);
    }
    return LINNET_OK;
}

/* Keeps the waiting part of the graph, without the fetches that this program provides. */
linnet_status ln_keep_rest(ln_work *w) {
    ln_program *program = w->result.program;
    if (w->waiting == 0) return LINNET_OK;
    program->rest = ln_pool_alloc(&program->pool, sizeof *program->rest);
    if (program->rest == NULL) return ln_work_no_memory(w);
    const linnet_status status = ln_work_snapshot(w, program->rest, program->memory, w->error);
    program->rest->error = NULL;
    for (int32_t i = 0; status == LINNET_OK && i < w->n_fetches; ++i) {
        const ln_work_value *v = w->fetches[i] >= 0 ? ln_value_at(w, w->fetches[i]) : NULL;
        if (v != NULL && (v->known || v->bounded)) program->rest->fetches[i] = -1;
    }
    return status;
}

linnet_status ln_take_needs(ln_work *w) {
    ln_program *program = w->result.program;
    const ln_needs *needs = w->result.needs;
    program->arena = needs->arena;
    program->io = needs->io;
    program->lower_bound = needs->lower_bound;
    program->naive = needs->naive;
    program->gradients = needs->gradients;
    program->n_grown = needs->n_grown;
    program->n_chunks = needs->n_chunks;
    program->n_weights = needs->n_weights;
    program->device_bytes = needs->device_bytes;
    program->recomputed = w->recomputing.added;
    program->ordered = w->updates.ordered || (w->result.outer != NULL && w->result.outer->ordered);
    /* The total is compared with the limit later, when it is known. This part is compared here, before kernels prepare
       tables, because tables may be as long as the tensors. */
    return program->ordered ? LINNET_OK : ln_check_bound(w->settings.max_bytes, program->arena + program->io, w->error);
}
