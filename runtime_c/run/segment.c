/* segment.c - segments whose shapes depend on data. They are planned at run time, and kept by shape in a bounded cache.
   The cache is a tree: the children of an instance are the continuations seen so far, each identified by its key. */
#include "run/segment.h"

#include "plan/compile/contents.h"
#include "plan/compile/packed.h"
#include "plan/compile/pipeline.h"
#include "plan/continue.h"
#include "plan/graph/refusals.h"
#include "run/device.h"
#include "run/instance.h"
#include "run/operand.h"
#include "linnet_ext.h"

#include <string.h>

enum { MOST_CHILDREN = 8 }; /* continuations kept per instance; the least recently run is dropped first */

static linnet_status no_memory(linnet_error *error) {
    return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate a segment whose shapes depend on data");
}

/* Writes the key for the values that were just computed, and returns its length. */
static int32_t write_key(const linnet_session *s, const ln_instance *instance, int64_t *words) {
    int32_t n = 0;
    for (int32_t i = 0; i < instance->program->n_exports; ++i) {
        const ln_port *port = &instance->program->exports[i];
        for (int d = 0; port->dims_slot >= 0 && d < port->tensor.rank; ++d)
            words[n++] = ln_port_dims(port, instance->dims)[d];
        const uint64_t bytes = port->wanted ? ln_port_bytes(port, instance->dims) : 0;
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

/* Returns the least recently run instance among `oldest` and the children, except instances on which this run
 * depends. */
static ln_instance **unused(const linnet_session *s, ln_instance *parent, ln_instance **oldest) {
    for (ln_instance **at = &parent->children; *at != NULL; at = &(*at)->sibling)
        if ((*at)->last_run != s->run_count && (oldest == NULL || (*at)->last_run < (*oldest)->last_run)) oldest = at;
    return oldest;
}

/* Returns the memory that max_bytes limits. It is the plan's total, which includes the session without later segments,
   plus the memory of the later segments. */
static uint64_t memory_in_use(const linnet_session *s) {
    return s->plan->info.total + (s->memory.bytes - s->first_bytes) + s->packed_bytes;
}

uint64_t ln_session_free(const linnet_session *s) {
    const uint64_t most = s->max_bytes;
    return most == 0 ? UINT64_MAX : most > memory_in_use(s) ? most - memory_in_use(s) : 0;
}

/* Reports that there is no room for a segment after `instance`. The hint says what the largest loop before it holds. */
static linnet_status no_room(const linnet_session *s, const ln_instance *instance, uint64_t bytes,
                             linnet_error *error) {
    const linnet_status status = ln_check_bound(s->max_bytes, memory_in_use(s) + bytes, error);
    uint64_t most = 0;
    for (; instance != NULL; instance = instance->parent)
        for (int32_t i = 0; instance->program->n_grown > 0 && i < instance->program->n_steps; ++i) {
            const ln_resolved_step *loop = &instance->steps[i];
            const uint64_t bytes = ln_grown_row(loop->step);
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
    if (instance == &s->root && bytes > 0 && s->plan->info.loop_iterations > 0)
        return LINNET_TOO_LARGE;   /* the plan reserves less; the caller adds the numbers to the error */
    ln_segments_free(s, instance); /* the children have pointers to the old memory */
    const uint64_t room = ln_session_free(s);
    uint64_t size = bytes > 2 * grown->size ? bytes : 2 * grown->size;
    if (room < size + LN_ALIGNMENT)
        size = room > bytes ? bytes + (room - bytes) / 2 : bytes; /* to grow by one row at a time would be slow */
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

/* Sets data[i] to the value of export i if shapes of the next segment depend on it, else to NULL. */
static void find_wanted(const linnet_session *s, const ln_instance *parent, const void **data) {
    for (int32_t i = 0; i < parent->program->n_exports; ++i) {
        const ln_port *port = &parent->program->exports[i];
        data[i] = port->wanted ? ln_instance_pointer(s, parent, &port->operand) : NULL;
    }
}

/* Tells whether a segment that does not fit may use reference kernels. They need little memory in addition to the
   values, but give other bits. Training must not use them for this reason, and neither may gradients of loops whose
   results grow: their results must not depend on max_bytes. */
static bool may_be_lean(const linnet_session *s, const ln_instance *parent) {
    bool grows = false;
    for (; parent != NULL; parent = parent->parent) grows |= parent->program->n_grown > 0;
    return !grows && !s->plan->writes_variables;
}

/* Plans the segment `child` after `parent`. `lean`: with reference kernels. */
static linnet_status plan_once(linnet_session *s, ln_instance *parent, ln_instance *child, bool lean,
                               ln_refusals *refusals, linnet_error *error) {
    ln_memory temporary;
    ln_memory_init(&temporary, &s->memory.allocator);
    ln_work w;
    ln_budget budget;
    memset(&w, 0, sizeof w);
    const size_t bytes = (size_t)parent->program->n_exports * sizeof(void *);
    const void **data = ln_memory_alloc(&temporary, bytes);
    if (data == NULL) return no_memory(error);
    find_wanted(s, parent, data);
    const ln_known known = {.dims = parent->dims, .data = data};
    linnet_status status = ln_continue(&w, parent->program, &known, &temporary, &s->memory, &budget, error);
    ln_memory_free(&temporary, data, bytes);
    w.settings.reference |= lean;
    w.offload.refusals = refusals;
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
    if (child->block == NULL || (child->memory_size > 0 && child->memory == NULL)) return no_memory(error);
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
        return no_memory(error);
    }
    memcpy(words, parent->next_key, key_bytes);
    memset(child, 0, sizeof *child);
    child->parent = parent;
    child->key = (ln_segment_key){words, count};
    int32_t children = 0;
    for (const ln_instance *other = parent->children; other != NULL; other = other->sibling) ++children;
    if (children >= MOST_CHILDREN) drop(s, unused(s, parent, NULL));
    linnet_status status = make(s, parent, child, false, error);
    if (status == LINNET_TOO_LARGE && !parent->program->rest->settings.reference && may_be_lean(s, parent)) {
        linnet_error ignored; /* if the second attempt fails too, the first error is reported */
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
