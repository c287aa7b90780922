/* body_steps.c - builds the programs of a loop or a branch. One step runs them, in its scratch memory. */
#include "plan/compile/body_steps.h"

#include "plan/compile/contents.h"
#include "plan/compile/pipeline.h"
#include "plan/compile/program.h"
#include "plan/graph/body_nodes.h"
#include "plan/passes/device_memory.h"

uint64_t ln_body_size(const ln_program *body, int threads) {
    return ln_round_up((size_t)body->io, LN_ALIGNMENT) + body->arena + ln_program_scratch(body, threads);
}

/* Adds a body's constants to those that the outermost program counts. Returns the bytes of the constants that it has
 * counted before, which the session does not allocate again. */
static uint64_t join_constants(ln_device_memory *sum, const ln_device_memory *m) {
    uint64_t twice = 0;
    for (ln_device_weight *r = m->distinct, *next; r != NULL; r = next) {
        next = r->next;
        if (ln_same_constant(sum->distinct, r) != NULL) {
            twice += r->key[3];
        } else {
            r->next = sum->distinct;
            sum->distinct = r;
        }
    }
    sum->constants += m->constants - twice;
    return twice;
}

/* A plan counts what all of its programs have on devices, so the outermost program has the sums. A body has allocations
 * of its own, except that it shares constants. */
static void count_devices(ln_program *program, const ln_program *body) {
    for (int32_t d = 1; d <= ln_device_count(program->n_devices); ++d) {
        ln_device_memory *sum = &program->devices[d];
        const ln_device_memory *m = &body->devices[d];
        sum->steps += m->steps;
        sum->nodes += m->nodes;
        sum->activations += m->activations;
        sum->scratch += m->scratch;
        sum->packed += m->packed;
        sum->own += m->own;
        program->device_bytes -= join_constants(sum, m);
        sum->variables += m->variables;
    }
    program->device_bytes += body->device_bytes;
    program->fallbacks += body->fallbacks;
}

linnet_status ln_body_lower(ln_work *w, ln_program *program, const ln_work_node *node, ln_step *step) {
    const bool loop = node->bodies[1] == NULL; /* a branch has two */
    const int64_t times = ln_body_trips(w, node);
    step->kind = loop ? LN_STEP_LOOP : LN_STEP_BRANCH;
    for (int k = 0; k < 2 && node->bodies[k] != NULL; ++k) {
        ln_work *b = node->bodies[k];
        b->error = w->error;
        b->result.outer = program;
        ln_program *p = ln_pool_alloc(&program->pool, sizeof *p);
        const linnet_status status = p == NULL ? ln_work_no_memory(w) : ln_program_build(b, program->memory, p);
        if (status != LINNET_OK) {
            if (k > 0) ln_program_free(step->bodies[0]);
            step->bodies[0] = NULL;
            return status;
        }
        step->bodies[k] = p;
        ++program->n_bodies;
        program->parallel |= p->parallel;
        program->reads_variables |= p->reads_variables;
        program->constants += p->constants;
        program->packed_only += p->packed_only;
        program->packed_bytes += p->packed_bytes;
        program->stored_bytes += p->stored_bytes;
        program->packed_variable_bytes += p->packed_variable_bytes;
        program->packs_variables |= p->packs_variables;
        if (LN_HAS_DEVICES) count_devices(program, p);
        program->scratch_shared = (uint64_t)ln_max(
            (int64_t)program->scratch_shared, (int64_t)ln_round_up(ln_body_size(p, w->settings.threads), LN_ALIGNMENT));
        uint64_t flops = 0;
        for (int32_t i = 0; i < p->n_steps; ++i) flops += p->steps[i].call.flops;
        if (flops * (uint64_t)times > step->call.flops) step->call.flops = flops * (uint64_t)times;
        if (p->ns * (double)times > (double)step->ns) step->ns = (float)(p->ns * (double)times);
    }
    return LINNET_OK;
}
