/* continue.c - what comes after a program whose shapes depend on data: the waiting part of the graph, its largest size,
 * and the memory that a plan reserves for loops whose number of iterations is known only in the run. */
#include "plan/continue.h"

#include "base/layout.h"
#include "base/platform_machine.h"
#include "plan/compile/contents.h"
#include "plan/compile/pipeline.h"
#include "plan/graph/fold.h"
#include "plan/graph/refusals.h"
#include "plan/session_layout.h"
#include "linnet_ext.h"

#include <string.h>

uint64_t ln_port_bytes(const ln_port *port, const int64_t *dims) {
    ln_tensor t = port->tensor;
    memcpy(t.dims, ln_port_dims(port, dims), sizeof t.dims);
    return ln_known_bytes(&t);
}

linnet_status ln_continue(ln_work *w, const ln_program *program, const ln_known *known, ln_memory *temporary,
                          ln_memory *persistent, ln_budget *budget, linnet_error *error) {
    linnet_status status = ln_work_snapshot(program->rest, w, temporary, error);
    ln_budget_init(budget, program->model, w->settings.max_bytes, temporary, persistent);
    w->persistent = persistent;
    w->budget = budget;
    for (int32_t i = 0; status == LINNET_OK && i < w->values.count; ++i) ln_value_at(w, i)->wanted = false;
    for (int32_t i = 0; status == LINNET_OK && i < program->n_exports; ++i) {
        const ln_port *port = &program->exports[i];
        ln_work_value *v = ln_value_at(w, port->value);
        memcpy(v->tensor.dims, ln_port_dims(port, known->dims), sizeof v->tensor.dims);
        if (known->data == NULL && port->operand.region == LN_REGION_GROWN) v->tensor.dims[0] = known->iterations;
        ln_set_layout(&v->tensor, LN_LAYOUT_DENSE);
        v->known = true;
        v->bounded = 0;
        v->imported = port->operand.region != LN_REGION_VARIABLE;
        if (known->data == NULL && port->wanted) v->undecided = true;
        if (known->data == NULL || !port->wanted) continue;
        const uint64_t bytes = ln_port_bytes(port, known->dims);
        int32_t blob; /* kept until the graph is freed */
        void *data = ln_fold_memory(w, bytes, &blob);
        if (data == NULL) return ln_work_no_memory(w);
        if (bytes > 0) memcpy(data, known->data[i], bytes);
        v->tensor.data = data;
    }
    return status;
}

/* Plans the segment after the program, with the upper bounds of all shapes. */
static linnet_status plan_largest(const ln_program *program, int64_t iterations, ln_memory *temporary, ln_memory *kept,
                                  ln_refusals *refusals, ln_program *next, linnet_error *error) {
    ln_work w;
    ln_budget budget;
    const ln_known known = {.iterations = iterations};
    memset(&w, 0, sizeof w);
    linnet_status status = ln_continue(&w, program, &known, temporary, kept, &budget, error);
    w.offload.refusals = refusals;
    if (iterations > 0) w.settings.max_bytes = UINT64_MAX; /* the caller asks how much is needed */
    if (status == LINNET_OK) status = ln_program_build(&w, kept, next);
    ln_work_free(&w);
    return ln_budget_end(&budget, kept, status, error);
}

/* Adds the memory of all segments after the program, in which loops of open length have as many iterations. Each
   segment keeps its memory while later ones run. Errors: UNKNOWN_SHAPE (there is no bound). */
static linnet_status bound_rest(const linnet_plan *plan, const ln_program *program, int64_t iterations, uint64_t *bytes,
                                linnet_error *error) {
    for (int32_t i = 0; iterations == 0 && program->n_grown > 0 && i < program->n_steps; ++i)
        for (int o = 0; o < program->steps[i].call.n_outputs; ++o)
            if (program->steps[i].outputs[o].region == LN_REGION_GROWN) {
                ln_fail(error, LINNET_UNKNOWN_SHAPE, "the number of results of a loop depends on data");
                ln_at_node(error, program->steps[i].index, program->steps[i].name);
                return ln_hint(error, "give the loop a maximum; its iteration count has no upper bound, or a very "
                                      "large one. Or set linnet_plan_config.max_bytes");
            }
    if (program->rest == NULL) return LINNET_OK;
    ln_memory temporary, kept;
    ln_memory_init(&temporary, &plan->memory.allocator);
    ln_memory_init(&kept, &plan->memory.allocator);
    ln_program next = {0};
    ln_refusals refusals;
    linnet_status status;
    ln_refusals_init(&refusals, &plan->memory.allocator);
    do status = plan_largest(program, iterations, &temporary, &kept, &refusals, &next, error);
    while (ln_build_again(&refusals));
    ln_refusals_free(&refusals);
    if (status != LINNET_OK) return status;
    const size_t parts[] = {sizeof(ln_instance), (size_t)ln_segment_key_words(program) * sizeof(int64_t),
                            ln_instance_size(&next),
                            (size_t)(next.io + next.arena + ln_program_scratch(&next, plan->threads))};
    *bytes += kept.bytes + next.packed_bytes;
    for (int i = 0; i < 4; ++i) *bytes += ln_round_up(parts[i] + 1, LN_ALIGNMENT);
    status = bound_rest(plan, &next, 0, bytes, error);
    ln_program_free(&next);
    return status;
}

linnet_status linnet_plan_bound(const linnet_plan *plan, uint64_t *bytes, linnet_error *error) {
    LN_WANT_ERROR(error);
    if (plan == NULL || bytes == NULL)
        return ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_plan_bound: `plan` and `bytes` must not be NULL");
    *bytes = plan->info.total;
    return bound_rest(plan, &plan->program, plan->info.loop_iterations, bytes, error);
}

uint64_t ln_grown_row(const ln_step *step) {
    const ln_program *body = step->kind == LN_STEP_LOOP ? step->bodies[0] : NULL;
    uint64_t bytes = 0;
    for (int32_t i = 0; body != NULL && i < body->n_outputs; ++i)
        if (ln_port_grows(step, &body->outputs[i])) bytes += body->outputs[i].bytes;
    return bytes;
}

/* Returns the `maximum` of the loop, if it is a constant. */
static int64_t most_iterations(const ln_step *loop) {
    const ln_tensor *trips = loop->call.inputs;
    return loop->call.n_inputs > 0 && trips->data != NULL ? ln_load_i64(trips->data, trips->dtype, 0) : INT64_MAX;
}

uint64_t ln_reserved_bytes(const linnet_plan *plan, ln_grown *grown) {
    const ln_program *p = &plan->program;
    uint64_t sum = 0;
    for (int32_t i = 0; plan->info.loop_iterations > 0 && i < p->n_steps; ++i) {
        const ln_step *step = &p->steps[i];
        for (int32_t o = 0; ln_grown_row(step) > 0 && o < step->bodies[0]->n_outputs; ++o) {
            const ln_port *port = &step->bodies[0]->outputs[o];
            if (!ln_port_grows(step, port)) continue;
            const int64_t rows = ln_min(plan->info.loop_iterations, most_iterations(step));
            const uint64_t bytes = port->bytes * (uint64_t)rows;
            if (grown != NULL) grown[step->outputs[port->index - 1].offset].size = (size_t)bytes;
            sum += ln_round_up(bytes, LN_ALIGNMENT);
        }
    }
    return sum;
}

/* Sets *bytes to the memory for so many iterations of the loops and for the segments after them. Errors: those of
 * bound_rest. */
static linnet_status need(linnet_plan *plan, int64_t iterations, uint64_t *bytes, linnet_error *error) {
    plan->info.loop_iterations = iterations;
    *bytes = ln_reserved_bytes(plan, NULL);
    return bound_rest(plan, &plan->program, iterations, bytes, error);
}

linnet_status ln_plan_reserve(linnet_plan *plan, linnet_error *error) {
    enum {
        LARGE = 64 << 20,
        OTHERS = 8, /* an eighth of the room stays free for plans of segments with other iteration counts */
        TRIES = 8,
        BELOW = 128 /* the interpolation aims 1/128 too low, because sizes are rounded up */
    };
    const ln_program *p = &plan->program;
    linnet_error ignored;
    int64_t high = 0, low = 1;
    uint64_t row = 0, room = plan->max_bytes - plan->info.total, needs, least;
    for (int32_t i = 0; plan->max_bytes > 0 && p->n_grown > 0 && i < p->n_steps; ++i) {
        const uint64_t bytes = ln_grown_row(&p->steps[i]);
        if (bytes > 0) high = ln_max(high, most_iterations(&p->steps[i]));
        row += bytes;
    }
    if (row == 0) return LINNET_OK;
    const uint64_t available = room < LARGE ? room : ln_memory_available() / 2;
    if (room > available) room = available;
    high = ln_min(high, (int64_t)((room - room / OTHERS) / row));
    /* The memory grows almost linearly with the number of iterations. A linear interpolation between a number that fits
       and a number that does not fit gives the next number to try. */
    linnet_status status = high > 0 ? need(plan, low, &least, &ignored) : LINNET_UNKNOWN_SHAPE;
    if (status == LINNET_OK && least <= room) status = need(plan, high, &needs, &ignored);
    if (status != LINNET_OK || least > room)
        low = 0; /* too little memory, or what comes after the loops has no bound */
    if (low > 0 && needs <= room) low = high;
    for (int i = 0; low > 0 && low < high && i < TRIES; ++i) {
        const double part = (double)(room - least) / (double)(needs - least) * (1 - 1.0 / BELOW);
        const int64_t next = low + (int64_t)(part * (double)(high - low));
        uint64_t bytes;
        if (next <= low || next >= high || (status = need(plan, next, &bytes, &ignored)) != LINNET_OK) break;
        if (bytes <= room)
            low = next, least = bytes;
        else
            high = next, needs = bytes;
    }
    if (status == LINNET_OUT_OF_MEMORY) return *error = ignored, status;
    plan->info.loop_iterations = low;
    plan->info.loop_values = ln_reserved_bytes(plan, NULL);
    plan->info.total += plan->info.loop_values;
    return LINNET_OK;
}
