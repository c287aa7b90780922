/* steps.c - runs the steps of an instance, and the bodies of loops and branches. It does not allocate, look up names,
 * or branch on dtypes. Steps with too little work stay on the calling thread; all others are split among the threads
 * (share.c). */
#include "run/steps.h"

#include "model/store.h"
#include "plan/continue.h"
#include "run/device.h"
#include "run/device_span.h"
#include "run/flush.h"
#include "run/fork.h"
#include "run/operand.h"
#include "run/segment.h"
#include "run/share.h"
#include "run/step_error.h"
#include "run/trace.h"
#include "run/watch.h"

#include <string.h>

static linnet_status run_body(linnet_session *s, const ln_resolved_step *resolved, linnet_error *error);

static inline linnet_status run_step(linnet_session *s, ln_instance *instance, ln_resolved_step *resolved,
                                     linnet_error *error) {
    const ln_step *step = resolved->step;
    if (step->kind >= LN_STEP_LOOP) return run_body(s, resolved, error);
    if (LN_HAS_DEVICES && step->kind != LN_STEP_KERNEL) return ln_device_submit(s, instance, resolved, error);
    for (int phase = 0; phase < step->call.phases; ++phase) {
        const int threads = step->threads[phase > 0];
        const linnet_status status = threads > 1 ? ln_run_parallel(s, resolved, phase, threads)
                                                 : step->kernel->code->run(&step->call, &resolved->buffers, phase, 0,
                                                                           step->call.work[phase > 0], 0);
        if (status != LINNET_OK) return ln_step_failed(s, resolved, status, error);
    }
    return LINNET_OK;
}

static linnet_status run_traced(linnet_session *s, ln_instance *instance, linnet_error *error) {
    for (int32_t i = 0; i < instance->program->n_steps; ++i) {
        const ln_step *step = instance->steps[i].step;
        linnet_status status = ln_watch_step(&s->watch, step, step->slow, error);
        if (status != LINNET_OK) return status;
        if (step->fork > 0) {
            const ln_fork *fork = &instance->program->forks[step->fork - 1];
            if ((status = ln_run_fork(s, instance, fork, true, error)) != LINNET_OK) return status;
            i = fork->end - 1;
            continue;
        }
        const uint64_t start = ln_now_ns();
        status = run_step(s, instance, &instance->steps[i], error);
        if (status != LINNET_OK) return status;
        instance->trace[i].total_ns += ln_now_ns() - start;
        instance->trace[i].start_ns = start;
        instance->trace[i].runs += !s->left_out;
        s->left_out = false;
        if (s->count_special) ln_count_special(&instance->steps[i], &instance->trace[i]);
    }
    return s->trace && ln_device_count(instance->program->n_devices) > 0 ? ln_device_times(s, instance, error)
                                                                         : LINNET_OK;
}

static bool is_traced(const linnet_session *s) { return s->trace || s->count_special; }

static linnet_status run_plain(linnet_session *s, ln_instance *instance, linnet_error *error) {
    const ln_program *p = instance->program;
    ln_resolved_step *resolved = instance->steps, *const end =
                                                      resolved + p->n_steps - (instance == &s->root ? s->skipped : 0);
    for (; resolved < end; ++resolved) {
        linnet_status status = ln_watch_step(&s->watch, resolved->step, resolved->step->slow, error);
        if (status != LINNET_OK) return status;
        if (resolved->step->fork > 0) {
            const ln_fork *fork = &p->forks[resolved->step->fork - 1];
            status = ln_run_fork(s, instance, fork, false, error);
            resolved = instance->steps + fork->end - 1;
        } else {
            status = run_step(s, instance, resolved, error);
        }
        if (status != LINNET_OK) return status;
    }
    return LINNET_OK;
}

/* Runs the steps of a session whose devices share memory with the host. The memory of inputs and outputs belongs to the
 * devices while the steps run. */
static linnet_status run_released_io(linnet_session *s, ln_instance *instance, linnet_error *error) {
    linnet_status status = ln_device_release_io(s, instance, error);
    if (status == LINNET_OK) status = (is_traced(s) ? run_traced : run_plain)(s, instance, error);
    return status == LINNET_OK ? ln_device_acquire_io(s, instance, error) : status;
}

void ln_choose_steps(linnet_session *s) {
    s->run_steps = LN_HAS_DEVICES && s->releases_io ? run_released_io : is_traced(s) ? run_traced : run_plain;
}

linnet_status ln_run_steps(linnet_session *s, ln_instance *instance, linnet_error *error) {
    const ln_program *p = instance->program;
    if (p->n_dims > 0) /* kernels overwrite the bounds with true dims, so the bounds are set again */
        for (int32_t i = 0; i < p->n_steps; ++i)
            for (int o = 0; p->steps[i].dims_slot >= 0 && o < p->steps[i].call.n_outputs; ++o)
                memcpy(instance->dims + (size_t)(p->steps[i].dims_slot + o) * LN_MAX_RANK,
                       p->steps[i].call.outputs[o].dims, LN_MAX_RANK * sizeof(int64_t));
    return s->run_steps(s, instance, error);
}

static void take(const linnet_session *s, const ln_instance *body, const ln_port *from, void *to) {
    if (from->bytes > 0) memcpy(to, ln_instance_pointer(s, body, &from->operand), (size_t)from->bytes);
}

/* Reports that the results of a loop do not fit once the row of another iteration is added. */
static linnet_status refuse(const ln_resolved_step *loop, int64_t fitted, linnet_error *error) {
    ln_fail(error, LINNET_TOO_LARGE,
            "the results of a loop's iterations need more memory than linnet_plan_config.max_bytes allows");
    ln_expected(error, "at most %lld iterations, as many as fitted", (long long)fitted);
    ln_got(error, "one more iteration, of %llu bytes", (unsigned long long)ln_grown_row(loop->step));
    ln_at_node(error, loop->step->index, loop->step->name);
    return ln_hint(error, "raise linnet_plan_config.max_bytes, or end the loop earlier");
}

/* Stores the row of a stacked result that this iteration has computed. */
static linnet_status stack(linnet_session *s, const ln_resolved_step *resolved, const ln_instance *body,
                           const ln_port *from, int64_t row, linnet_error *error) {
    const ln_operand *to = &resolved->step->outputs[from->index - 1];
    char *data = resolved->buffers.outputs[from->index - 1];
    if (to->region == LN_REGION_VARIABLE) s->watch.on = false;
    if (to->region == LN_REGION_GROWN) {
        ln_grown *grown = &body->outer->grown[to->offset];
        const linnet_status status =
            ln_instance_grow(s, body->outer, grown, (size_t)(row + 1) * (size_t)from->bytes, error);
        if (status == LINNET_TOO_LARGE) return refuse(resolved, row, error);
        if (status != LINNET_OK) return status;
        data = grown->data;
    }
    take(s, body, from, data + (size_t)row * (size_t)from->bytes);
    return LINNET_OK;
}

static bool holds(const void *condition, const ln_tensor *t) {
    return condition == NULL || ln_load_i64(condition, t->dtype, 0) != 0;
}

static const ln_port *result(const ln_program *p, int32_t index) {
    const ln_port *port = p->outputs;
    while (port->index != index) ++port;
    return port;
}

/* Ports of a body. An input has the number of its parameter: 0 is the counter, and the carried values begin at 2. An
   output has the number of its result: 0 is the condition, the carried values begin at 1, and the stacked values
   follow. */
static linnet_status run_loop(linnet_session *s, const ln_resolved_step *resolved, linnet_error *error) {
    const ln_call *call = &resolved->step->call;
    ln_instance *body = resolved->state;
    const ln_program *p = body->program;
    const int32_t carried = (int32_t)((const ln_while_attributes *)call->attributes)->carried;
    const void *const *in = resolved->buffers.inputs;
    const int64_t trips =
        call->n_inputs > 0 && in[0] != NULL ? ln_load_i64(in[0], call->inputs[0].dtype, 0) : INT64_MAX;
    bool on = call->n_inputs < 2 || holds(in[1], &call->inputs[1]);
    int64_t done = 0;
    linnet_status status = LINNET_OK;
    for (; done < trips && on; ++done) {
        if ((status = ln_watch_step(&s->watch, resolved->step, false, error)) != LINNET_OK) return status;
        for (int32_t i = 0; i < p->n_inputs; ++i) {
            const ln_port *port = &p->inputs[i];
            void *to = ln_instance_pointer(s, body, &port->operand);
            if (port->index == 0)
                *(int64_t *)to = done;
            else if (done > 0)
                take(s, body, result(p, port->index - 1), to);
            else if (port->bytes > 0)
                memcpy(to, in[port->index], (size_t)port->bytes);
        }
        if ((status = ln_run_steps(s, body, error)) != LINNET_OK) return status;
        for (const ln_port *port = p->outputs; port < p->outputs + p->n_outputs; ++port)
            if (port->index == 0)
                on = holds(ln_instance_pointer(s, body, &port->operand), &port->tensor);
            else if (port->index > carried && (status = stack(s, resolved, body, port, done, error)) != LINNET_OK)
                return status;
    }
    /* The outputs are variables, which are overwritten below, so the run must not end any more. */
    if (resolved->step->updates) s->watch.on = false;
    for (int32_t c = 0; c < carried; ++c) {
        if (resolved->buffers.outputs[c] == NULL) continue;
        const ln_port *port = result(p, c + 1);
        if (done > 0)
            take(s, body, port, resolved->buffers.outputs[c]);
        else if (port->bytes > 0)
            memcpy(resolved->buffers.outputs[c], in[2 + c], (size_t)port->bytes);
    }
    for (int o = carried; o < call->n_outputs; ++o) {
        if (resolved->buffers.output_dims != NULL) resolved->buffers.output_dims[o * LN_MAX_RANK] = done;
        /* An empty result needs an address too. */
        if (resolved->step->outputs[o].region == LN_REGION_GROWN && done == 0)
            status = ln_instance_grow(s, body->outer, &body->outer->grown[resolved->step->outputs[o].offset], 0, error);
        if (status != LINNET_OK) return status;
    }
    return LINNET_OK;
}

static linnet_status run_body(linnet_session *s, const ln_resolved_step *resolved, linnet_error *error) {
    if (resolved->step->kind == LN_STEP_LOOP) return run_loop(s, resolved, error);
    ln_instance *body =
        (ln_instance *)resolved->state + !holds(resolved->buffers.inputs[0], resolved->step->call.inputs);
    const linnet_status status = ln_run_steps(s, body, error);
    if (resolved->step->updates) s->watch.on = false;
    for (int32_t i = 0; status == LINNET_OK && i < body->program->n_outputs; ++i)
        take(s, body, &body->program->outputs[i], resolved->buffers.outputs[body->program->outputs[i].index]);
    return status;
}
