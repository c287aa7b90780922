/* pipeline.c - builds a program: runs the passes of passes.inc in order, and records the changes of each pass if the
 * caller asks for them. Builds with LN_CHECK_PASSES stop at the first pass after which a fact does not hold. */
#include "plan/compile/pipeline.h"

#include "base/sort.h"
#include "plan/compile/checks.h"
#include "plan/compile/contents.h"
#include "plan/compile/expand.h"
#include "plan/compile/lower.h"
#include "plan/passes/passes.h"

#ifdef LN_CHECK_PASSES
#include <stdio.h>
#include <stdlib.h>
#endif
#include <string.h>

const char *ln_pass_name(int pass) {
    static const char names[][14] = {
#define LN_FACT(name, check, sentence)
#define LN_PASS(name, function, when, needs, gives, ends, sentence) #name,
#include "plan/compile/passes.inc"
#undef LN_PASS
#undef LN_FACT
    };
    return names[pass];
}

/* ---- what a pass changed ----------------------------------------------------------------------------------------- */

/* The nodes of a graph at one time, in order. */
typedef struct picture {
    const ln_work_node **nodes;
    int32_t count;
} picture;

static uint64_t bytes_now(const ln_work *w) {
    uint64_t bytes = 0;
    if (w->result.needs->arena + w->result.needs->io > 0) return w->result.needs->arena + w->result.needs->io;
    for (int32_t i = 0; i < w->buffers.count; ++i) {
        const ln_work_buffer *b = ln_buffer_at(w, i);
        if ((b->kind == LN_REGION_ARENA || b->kind == LN_REGION_IO) && ln_on_cpu(b->device)) bytes += b->size;
    }
    for (int32_t i = 0; w->buffers.count == 0 && i < w->nodes.count; ++i)
        for (int32_t o = 0; o < ln_node_at(w, i)->n_outputs; ++o)
            if (ln_node_at(w, i)->outputs[o] >= 0)
                bytes += ln_known_bytes(&ln_value_at(w, ln_node_at(w, i)->outputs[o])->tensor);
    return bytes;
}

static linnet_status look(ln_work *w, picture *p, ln_pass_change *c, int after) {
    p->nodes = ln_pool_array(&w->pool, w->nodes.count, sizeof *p->nodes);
    if (p->nodes == NULL) return ln_work_no_memory(w);
    p->count = c->fused[after] = 0;
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (node->state == LN_NODE_GONE) continue;
        c->fused[after] += node->map != NULL;
        p->nodes[p->count++] = node;
    }
    c->nodes[after] = p->count;
    c->values[after] = w->values.count;
    c->bytes[after] = bytes_now(w);
    return LINNET_OK;
}

/* Tells whether the node in one slot of a picture has a lower address than that in another. */
static bool lower_address(const void *a, const void *b) {
    return (uintptr_t)*(const ln_work_node *const *)a < (uintptr_t)*(const ln_work_node *const *)b;
}

static linnet_status compare(ln_work *w, const picture *before, const picture *after, ln_pass_change *c) {
    const void **sorted = ln_pool_array(&w->pool, before->count, sizeof *sorted);
    if (sorted == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < before->count; ++i) sorted[i] = &before->nodes[i];
    ln_sort(sorted, before->count, lower_address);
    int64_t latest = -1;
    int32_t common = 0;
    for (int32_t i = 0; i < after->count; ++i) {
        int32_t low = 0, high = before->count;
        while (low < high) {
            const int32_t middle = (low + high) / 2;
            if (lower_address(sorted[middle], &after->nodes[i]))
                low = middle + 1;
            else
                high = middle;
        }
        if (low == before->count || *(const ln_work_node *const *)sorted[low] != after->nodes[i]) continue;
        const int64_t was = (const ln_work_node *const *)sorted[low] - before->nodes;
        c->moved += was < latest;
        latest = ln_max(latest, was);
        ++common;
    }
    c->removed = before->count - common;
    c->added = after->count - common;
    return LINNET_OK;
}

static linnet_status run(ln_work *w, int pass, linnet_status (*function)(ln_work *w)) {
    if (w->request.changes == NULL) return function(w);
    ln_pass_change *c = &w->request.changes[pass];
    picture before, after;
    *c = (ln_pass_change){.ran = true};
    linnet_status status = look(w, &before, c, 0);
    if (status == LINNET_OK) status = function(w);
    if (status == LINNET_OK) status = look(w, &after, c, 1);
    return status == LINNET_OK ? compare(w, &before, &after, c) : status;
}

/* ---- facts ------------------------------------------------------------------------------------------------------- */

#ifdef LN_CHECK_PASSES

enum {
#define LN_FACT(name, check, sentence) NUMBER_##name,
#define LN_PASS(name, function, when, needs, gives, ends, sentence)
#include "plan/compile/passes.inc"
#undef LN_PASS
#undef LN_FACT
};
enum {
    NOTHING = 0,
#define LN_FACT(name, check, sentence) name = 1 << NUMBER_##name,
#define LN_PASS(name, function, when, needs, gives, ends, sentence)
#include "plan/compile/passes.inc"
#undef LN_PASS
#undef LN_FACT
};

static void check(const ln_work *w, int pass, uint32_t facts, uint32_t needs) {
    const char *node = "", *broken = ln_broken_fact(w, facts, &node);
    if (broken == NULL && (needs & ~facts) == 0) return;
    fprintf(stderr, "pass %s: %s (%s)\n", ln_pass_name(pass), broken ? broken : "needs a fact that does not hold",
            node);
    abort();
}

#define BEFORE(pass, needs) check(w, pass, facts, needs)
#define AFTER(pass, gives, ends) check(w, pass, facts = (facts & ~(uint32_t)(ends)) | (gives), 0)

#else

#define BEFORE(pass, needs) (void)0
#define AFTER(pass, gives, ends) (void)0

#endif

/* ---- the list ---------------------------------------------------------------------------------------------------- */

#define ALWAYS true
#define OF_SIGNATURE (w->kind == LN_WORK_SIGNATURE)
#define OF_SEGMENT (w->kind == LN_WORK_SEGMENT)
#define FAST (!w->settings.reference)
#define STRUCTURED (!w->settings.reference && w->request.frame == NULL) /* plans of one frame have equal nodes */
#define WITH_DEVICES (ln_device_count(w->settings.n_devices) > 0)
#define PLACED (LN_HAS_DEVICES && w->settings.n_devices + w->settings.n_tasks > 0)
#define TO_FIT (w->updates.ordered && w->recomputing.target > 0)
#define SIDE_BY_SIDE                                                                                                   \
    (FAST && OF_SIGNATURE && w->settings.threads > 1 && !WITH_DEVICES && !w->request.apart && !w->updates.ordered)
#define IN_FRAME (w->request.frame != NULL)

static linnet_status run_passes(ln_work *w) {
    linnet_status status = LINNET_OK;
#ifdef LN_CHECK_PASSES
    uint32_t facts = OF_SIGNATURE || OF_SEGMENT ? NOTHING : SHAPES | ORDER; /* a body was expanded with its loop */
#endif
#define LN_FACT(name, check, sentence)
#define LN_PASS(name, function, when, needs, gives, ends, sentence)                                                    \
    if (status == LINNET_OK) {                                                                                         \
        if (when) {                                                                                                    \
            BEFORE(LN_PASS_##name, needs);                                                                             \
            status = run(w, LN_PASS_##name, function);                                                                 \
        }                                                                                                              \
        if (status == LINNET_OK) AFTER(LN_PASS_##name, gives, ends);                                                   \
    }
#include "plan/compile/passes.inc"
#undef LN_PASS
#undef LN_FACT
    return status;
}

linnet_status ln_program_build(ln_work *w, ln_memory *memory, ln_program *program) {
    memset(program, 0, sizeof *program);
    program->memory = memory;
    program->model = w->model;
    program->outer = w->result.outer;
    program->n_devices = w->settings.n_devices;
    ln_pool_init(&program->pool, memory);
    /* A plan in a frame must not need more bytes than the plan that made the frame, which is for larger shapes. */
    program->pool.exact = w->request.frame != NULL;
    program->devices = ln_pool_array(&program->pool, (int64_t)w->settings.n_devices + 1, sizeof *program->devices);
    ln_needs needs = {.devices = program->devices};
    w->result.program = program;
    w->result.pool = &program->pool;
    w->result.needs = &needs;
    const linnet_status status = program->devices == NULL ? ln_work_no_memory(w) : run_passes(w);
    w->result.needs = NULL;
    if (status != LINNET_OK) ln_program_free(program);
    return status;
}
