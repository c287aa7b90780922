/* segment.c - segments whose shapes depend on data. They are planned at run time, and kept by shape in a bounded cache.
   The cache is a tree: the children of an instance are the continuations seen so far, each identified by its key. */
#include "plan/graph/fold.h"
#include "plan/graph/refusals.h"
#include "run/session.h"
#include "linnet_ext.h"

#include <string.h>

enum { MOST_CHILDREN = 8 }; /* continuations kept per instance; the least recently run is dropped first */

/* The true dims; if there is no instance, the upper bounds. */
static const int64_t *true_dims(const ln_instance *instance, const ln_port *port) {
    return instance != NULL && port->dims_slot >= 0 ? instance->dims + (size_t)port->dims_slot * LN_MAX_RANK
                                                    : port->tensor.dims;
}

static uint64_t true_bytes(const ln_instance *instance, const ln_port *port) {
    ln_tensor t = port->tensor;
    memcpy(t.dims, true_dims(instance, port), sizeof t.dims);
    return ln_known_bytes(&t);
}

/* Writes the key for the values that were just computed, and returns its length. */
static int32_t write_key(const linnet_session *s, const ln_instance *instance, int64_t *words) {
    int32_t n = 0;
    for (int32_t i = 0; i < instance->program->n_exports; ++i) {
        const ln_port *port = &instance->program->exports[i];
        for (int d = 0; port->dims_slot >= 0 && d < port->tensor.rank; ++d) words[n++] = true_dims(instance, port)[d];
        const uint64_t bytes = port->wanted ? true_bytes(instance, port) : 0;
        if (bytes == 0) continue;
        const int32_t count = (int32_t)((bytes + 7) / 8);
        words[n + count - 1] = 0; /* padding of the last word */
        memcpy(words + n, ln_instance_pointer(s, instance, &port->operand), bytes);
        n += count;
    }
    return n;
}

/* Frees what `make` has made. */
static void clear(linnet_session *s, ln_instance *instance) {
    if (instance->program != NULL) ln_instance_unbind(s, instance);
    s->packed_bytes -= (size_t)ln_min((int64_t)s->packed_bytes, (int64_t)ln_program_unpack(&instance->own));
    ln_program_free(&instance->own);
    ln_memory_free(&s->memory, instance->memory, instance->memory_size);
    ln_memory_free(&s->memory, instance->block, instance->block_size);
}

static void free_instance(linnet_session *s, ln_instance *instance) {
    ln_segments_free(s, instance);
    clear(s, instance);
    ln_memory_free(&s->memory, instance->key.words, (size_t)instance->key.count * sizeof(int64_t));
    ln_memory_free(&s->memory, instance, sizeof *instance);
}

void ln_segments_free(linnet_session *s, ln_instance *instance) {
    while (instance->children != NULL) {
        ln_instance *child = instance->children;
        instance->children = child->sibling;
        free_instance(s, child);
    }
}

static bool drop(linnet_session *s, ln_instance **at) {
    if (at == NULL) return false;
    ln_instance *gone = *at;
    *at = gone->sibling;
    free_instance(s, gone);
    return true;
}

/* The least recently run instance among `oldest` and the children, except instances on which this run depends. */
static ln_instance **unused(const linnet_session *s, ln_instance *parent, ln_instance **oldest) {
    for (ln_instance **at = &parent->children; *at != NULL; at = &(*at)->sibling)
        if ((*at)->last_run != s->run_count && (oldest == NULL || (*at)->last_run < (*oldest)->last_run)) oldest = at;
    return oldest;
}

/* The memory that max_bytes limits. It is the plan's total, which includes the session without later segments, plus the
   memory of the later segments. */
static uint64_t held(const linnet_session *s) {
    return s->plan->info.total + (s->memory.bytes - s->first_bytes) + s->packed_bytes;
}

uint64_t ln_session_free(const linnet_session *s) {
    const uint64_t most = s->max_bytes;
    return most == 0 ? UINT64_MAX : most > held(s) ? most - held(s) : 0;
}

uint64_t ln_grown_row(const ln_bound *loop) {
    const ln_program *body = loop->step->kind == LN_STEP_LOOP ? ((const ln_instance *)loop->state)->program : NULL;
    uint64_t bytes = 0;
    for (int32_t i = 0; body != NULL && i < body->n_outputs; ++i)
        if (body->outputs[i].index > 0 && loop->step->outputs[body->outputs[i].index - 1].region == LN_REGION_GROWN)
            bytes += body->outputs[i].bytes;
    return bytes;
}

/* There is no room for a segment after `instance`. The hint says what the largest loop before it holds. */
static linnet_status no_room(const linnet_session *s, const ln_instance *instance, uint64_t bytes,
                             linnet_error *error) {
    const linnet_status status = ln_check_bound(s->max_bytes, held(s) + bytes, error);
    uint64_t most = 0;
    for (; instance != NULL; instance = instance->parent)
        for (int32_t i = 0; instance->program->n_grown > 0 && i < instance->program->n_steps; ++i) {
            const ln_bound *loop = &instance->steps[i];
            const uint64_t bytes = ln_grown_row(loop);
            if (bytes == 0) continue;
            const int64_t rows = loop->buffers.output_dims[(loop->step->call.n_outputs - 1) * LN_MAX_RANK];
            if (bytes * (uint64_t)rows <= most) continue;
            most = bytes * (uint64_t)rows;
            ln_hint(error,
                    "raise linnet_plan_config.max_bytes: a loop kept %lld iterations of %llu bytes each, and "
                    "their readers need memory too",
                    (long long)rows, (unsigned long long)bytes);
        }
    return status;
}

linnet_status ln_segments_make_room(linnet_session *s, ln_instance *last, uint64_t bytes, linnet_error *error) {
    while (ln_session_free(s) < bytes) {
        ln_instance **oldest = NULL;
        for (ln_instance *parent = last; parent != NULL; parent = parent->parent) oldest = unused(s, parent, oldest);
        if (!drop(s, oldest)) return no_room(s, last, bytes, error);
    }
    return ln_memory_check(&s->memory, bytes, error);
}

linnet_status ln_instance_grow(linnet_session *s, ln_instance *instance, ln_grown *grown, size_t bytes,
                               linnet_error *error) {
    if (grown->data != NULL && bytes <= grown->size) return LINNET_OK;
    ln_segments_free(s, instance); /* the children have pointers to the old memory */
    const uint64_t room = ln_session_free(s);
    uint64_t size = bytes > 2 * grown->size ? bytes : 2 * grown->size;
    if (room < size + LN_ALIGNMENT)
        size = room > bytes ? bytes + (room - bytes) / 2 : bytes; /* a row at a time is slow */
    size = ln_round_up(size > 0 ? size : 1, LN_ALIGNMENT);
    const linnet_status status = ln_segments_make_room(s, instance, size, error);
    char *data = status == LINNET_OK ? ln_memory_alloc(&s->memory, size) : NULL;
    if (data != NULL && grown->size > 0) memcpy(data, grown->data, grown->size);
    ln_instance_shrink(s, grown); /* also after a failure, because the next run starts from the beginning */
    if (status != LINNET_OK) return status;
    if (data == NULL) return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate the results of a loop");
    *grown = (ln_grown){data, (size_t)size};
    return LINNET_OK;
}

/* The waiting graph, with everything that is known after the program has run. While bounds are computed, there is no
   session and no instance. Shapes are then the largest possible shapes, and wanted values stay undecided. */
static linnet_status resume(const ln_program *program, linnet_session *s, const ln_instance *parent, ln_work *w,
                            ln_memory *temporary, ln_memory *persistent, ln_budget *budget, linnet_error *error) {
    linnet_status status = ln_work_snapshot(program->rest, w, temporary, error);
    ln_budget_init(budget, program->model, w->max_bytes, temporary, persistent);
    w->persistent = persistent;
    w->budget = budget;
    for (int32_t i = 0; status == LINNET_OK && i < w->values.count; ++i) ln_value_at(w, i)->wanted = false;
    for (int32_t i = 0; status == LINNET_OK && i < program->n_exports; ++i) {
        const ln_port *port = &program->exports[i];
        ln_work_value *v = ln_value_at(w, port->value);
        memcpy(v->tensor.dims, true_dims(parent, port), sizeof v->tensor.dims);
        ln_set_layout(&v->tensor, LN_LAYOUT_DENSE);
        v->known = true;
        v->bounded = 0;
        v->imported = port->operand.region != LN_REGION_VARIABLE;
        if (s == NULL && port->wanted) v->undecided = true;
        if (s == NULL || !port->wanted) continue;
        const uint64_t bytes = true_bytes(parent, port);
        int32_t blob; /* kept until the graph is freed */
        void *data = ln_fold_memory(w, bytes, &blob);
        if (data == NULL) return ln_work_no_memory(w);
        if (bytes > 0) memcpy(data, ln_instance_pointer(s, parent, &port->operand), bytes);
        v->tensor.data = data;
    }
    w->resumes = true;
    return status;
}

/* lean: uses reference kernels, which need little memory in addition to the values. */
static linnet_status plan_once(linnet_session *s, ln_instance *parent, ln_instance *child, bool lean,
                               ln_refusals *refusals, linnet_error *error) {
    ln_memory temporary;
    ln_memory_init(&temporary, &s->memory.allocator);
    ln_work w;
    ln_budget budget;
    memset(&w, 0, sizeof w);
    linnet_status status = resume(parent->program, s, parent, &w, &temporary, &s->memory, &budget, error);
    w.reference |= lean;
    w.refusals = refusals;
    if (status == LINNET_OK) status = ln_program_build(&w, &s->memory, &child->own);
    ln_work_free(&w);
    status = ln_budget_end(&budget, &s->memory, status, error);
    if (status == LINNET_OK) child->program = &child->own;
    return status;
}

/* Allocates packed weights and memory for a planned segment, after making room for them. */
static linnet_status allocate(linnet_session *s, ln_instance *child, linnet_error *error) {
    ln_program *p = child->program;
    const uint64_t memory = p->io + p->arena + ln_program_scratch(p, s->plan->threads);
    const size_t block = ln_instance_size(p);
    linnet_status status = ln_segments_make_room(
        s, child->parent, ln_round_up(block + 1, LN_ALIGNMENT) + memory + ln_program_share(p), error);
    if (status == LINNET_OK) status = ln_program_pack(p, error);
    s->packed_bytes += (size_t)p->packed_own;
    if (status != LINNET_OK) return status;
    child->block_size = block;
    child->memory_size = (size_t)memory;
    child->block = ln_memory_alloc(&s->memory, child->block_size);
    child->memory = child->memory_size ? ln_memory_alloc(&s->memory, child->memory_size) : NULL;
    if (child->block == NULL || (child->memory_size > 0 && child->memory == NULL))
        return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate a segment whose shapes depend on data");
    memset(child->block, 0, child->block_size);
    child->io = child->memory;
    child->arena = child->memory != NULL ? child->io + p->io : NULL;
    return ln_instance_bind(s, child, child->block, error);
}

static linnet_status make(linnet_session *s, ln_instance *parent, ln_instance *child, bool lean, linnet_error *error) {
    const ln_instance empty = *child;
    ln_refusals refusals;
    linnet_status status;
    bool again;
    ln_refusals_init(&refusals, &s->memory.allocator);
    do {
        status = plan_once(s, parent, child, lean, &refusals, error);
        if (status == LINNET_OK) status = allocate(s, child, error);
        status = ln_note_refused(s, &refusals, status, error);
        again = ln_build_again(&refusals);
        if (again) {
            clear(s, child);
            *child = empty;
        }
    } while (again);
    ln_refusals_free(&refusals);
    return status;
}

linnet_status ln_segment_next(linnet_session *s, ln_instance *parent, ln_instance **next, linnet_error *error) {
    const int32_t count = write_key(s, parent, parent->next_key);
    const size_t key_bytes = (size_t)count * sizeof(int64_t);
    for (ln_instance *child = parent->children; child != NULL; child = child->sibling) {
        if (child->key.count != count || memcmp(child->key.words, parent->next_key, key_bytes) != 0) continue;
        child->last_run = s->run_count;
        *next = child;
        return LINNET_OK;
    }
    ln_instance *child = ln_memory_alloc(&s->memory, sizeof *child);
    int64_t *words = ln_memory_alloc(&s->memory, key_bytes);
    if (child == NULL || words == NULL) {
        ln_memory_free(&s->memory, child, sizeof *child);
        ln_memory_free(&s->memory, words, key_bytes);
        return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate a segment whose shapes depend on data");
    }
    memcpy(words, parent->next_key, key_bytes);
    memset(child, 0, sizeof *child);
    child->parent = parent;
    child->key = (ln_segment_key){words, count};
    int32_t children = 0;
    for (const ln_instance *other = parent->children; other != NULL; other = other->sibling) ++children;
    if (children >= MOST_CHILDREN) drop(s, unused(s, parent, NULL));
    linnet_status status = make(s, parent, child, false, error);
    if (status == LINNET_TOO_LARGE && !parent->program->rest->reference) {
        linnet_error ignored; /* the first reason is the one to report */
        ln_program_free(&child->own);
        child->program = NULL;
        if (make(s, parent, child, true, &ignored) == LINNET_OK) status = LINNET_OK;
    }
    if (status != LINNET_OK) {
        free_instance(s, child);
        return status;
    }
    child->sibling = parent->children;
    parent->children = child;
    child->last_run = s->run_count;
    *next = child;
    return LINNET_OK;
}

/* Plans the largest segment that may follow the program. */
static linnet_status plan_largest(const ln_program *program, ln_memory *temporary, ln_memory *kept,
                                  ln_refusals *refusals, ln_program *next, linnet_error *error) {
    ln_work w;
    ln_budget budget;
    memset(&w, 0, sizeof w);
    linnet_status status = resume(program, NULL, NULL, &w, temporary, kept, &budget, error);
    w.refusals = refusals;
    if (status == LINNET_OK) status = ln_program_build(&w, kept, next);
    ln_work_free(&w);
    return ln_budget_end(&budget, kept, status, error);
}

/* The total memory of all segments after the program. Each keeps its memory while later ones run.
 */
static linnet_status bound_rest(const linnet_plan *plan, const ln_program *program, uint64_t *bytes,
                                linnet_error *error) {
    for (int32_t i = 0; program->n_grown > 0 && i < program->n_steps; ++i)
        for (int o = 0; o < program->steps[i].call.n_outputs; ++o)
            if (program->steps[i].outputs[o].region == LN_REGION_GROWN) {
                ln_fail(error, LINNET_UNKNOWN_SHAPE, "the number of results of a loop depends on data");
                ln_at_node(error, program->steps[i].index, program->steps[i].name);
                return ln_hint(error,
                               "give the loop a maximum; its iteration count has no upper bound, or a very large one");
            }
    if (program->rest == NULL) return LINNET_OK;
    ln_memory temporary, kept;
    ln_memory_init(&temporary, &plan->memory.allocator);
    ln_memory_init(&kept, &plan->memory.allocator);
    ln_program next = {0};
    ln_refusals refusals;
    linnet_status status;
    ln_refusals_init(&refusals, &plan->memory.allocator);
    do status = plan_largest(program, &temporary, &kept, &refusals, &next, error);
    while (ln_build_again(&refusals));
    ln_refusals_free(&refusals);
    if (status != LINNET_OK) return status;
    const size_t parts[] = {sizeof(ln_instance), (size_t)ln_segment_key_words(program) * sizeof(int64_t),
                            ln_instance_size(&next),
                            (size_t)(next.io + next.arena + ln_program_scratch(&next, plan->threads))};
    *bytes += kept.bytes + next.packed_bytes;
    for (int i = 0; i < 4; ++i) *bytes += ln_round_up(parts[i] + 1, LN_ALIGNMENT);
    status = bound_rest(plan, &next, bytes, error);
    ln_program_free(&next);
    return status;
}

linnet_status linnet_plan_bound(const linnet_plan *plan, uint64_t *bytes, linnet_error *error) {
    LN_WANT_ERROR(error);
    if (plan == NULL || bytes == NULL)
        return ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_plan_bound: `plan` and `bytes` must not be NULL");
    *bytes = plan->info.total;
    return bound_rest(plan, &plan->program, bytes, error);
}
