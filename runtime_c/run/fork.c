/* fork.c - runs the branches of a fork side by side: each thread takes the next branch and runs its steps alone. No
 * branch reads what another one writes, and the plan keeps their memory apart. */
#include "run/fork.h"

#include "base/platform_machine.h"
#include "base/platform_threads.h"
#include "run/operand.h"
#include "run/step_error.h"
#include "run/trace.h"
#include "run/watch.h"

typedef struct forking {
    linnet_session *session;
    ln_instance *instance;
    const ln_fork *fork;
    linnet_error *error;
    bool traced, watches; /* watches: part 0 runs on the thread that called linnet_run, where `poll` may be called */
    atomic_int next;      /* the first branch that no thread has taken */
    atomic_int ended;     /* a step has failed, or the run should end */
    linnet_status watched;
    uint32_t own; /* the share of the fork's modelled time that the calling thread has run, in 1/65536 */
} forking;

static linnet_status run_step(const forking *f, ln_resolved_step *resolved, int lane) {
    const ln_program *p = f->instance->program;
    const ln_step *step = resolved->step;
    ln_buffers buffers = resolved->buffers;
    buffers.scratch = ln_at(f->instance->arena, p->arena + ln_lane_scratch(p, lane));
    const uint64_t start = f->traced ? ln_now_ns() : 0;
    linnet_status status = LINNET_OK;
    for (int phase = 0; phase < step->call.phases && status == LINNET_OK; ++phase)
        status = step->kernel->code->run(&step->call, &buffers, phase, 0, step->call.work[phase > 0], lane);
    if (!f->traced || status != LINNET_OK) return status;
    ln_trace *trace = &f->instance->trace[resolved - f->instance->steps];
    trace->total_ns += ln_now_ns() - start;
    trace->start_ns = start;
    trace->runs += 1;
    if (f->session->count_special) ln_count_special(resolved, trace);
    return LINNET_OK;
}

/* Tells whether the run goes on with this step. */
static bool goes_on(forking *f, const ln_step *step, int part) {
    if (atomic_load_explicit(&f->ended, memory_order_relaxed)) return false;
    if (part == 0 && f->watches) {
        f->watched = ln_watch_step(&f->session->watch, step, step->slow, f->error);
        return f->watched == LINNET_OK;
    }
    return !ln_watch_over(&f->session->watch, step->slow);
}

static void run_branches(void *argument, int part) {
    forking *f = argument;
    const ln_fork *fork = f->fork;
    const int lane = part == LN_ALL_PARTS ? 0 : part;
    double done = 0;
    int b;
    while ((b = atomic_fetch_add(&f->next, 1)) < fork->n_branches) {
        for (int32_t i = b > 0 ? fork->branches[b - 1].end : fork->first; i < fork->branches[b].end; ++i) {
            ln_resolved_step *resolved = &f->instance->steps[i];
            if (goes_on(f, resolved->step, lane) && run_step(f, resolved, lane) == LINNET_OK) continue;
            atomic_store(&f->ended, 1);
            return;
        }
        done += fork->branches[b].ns;
    }
    if (lane == 0 && fork->ns > 0) f->own = (uint32_t)(65536 * (done / fork->ns));
}

linnet_status ln_run_fork(linnet_session *s, ln_instance *instance, const ln_fork *fork, bool traced,
                          linnet_error *error) {
    forking f = {.session = s, .instance = instance, .fork = fork, .error = error, .traced = traced};
    const int lanes = ln_lanes_of(fork, s->plan->threads);
    f.watches = s->parallel_for == NULL;
    if (s->parallel_for != NULL)
        s->parallel_for(s->parallel_context, run_branches, &f, lanes);
    else
        ln_threads_run(s->threads, run_branches, &f, lanes, &instance->steps[fork->first].alone[0], &f.own);
    if (!atomic_load(&f.ended)) return LINNET_OK;
    if (f.watched != LINNET_OK) return f.watched;
    /* A branch does not change the values that it reads from outside, not even if one of its steps fails. So all steps
     * can run again, one after another. This finds the step that fails first in the order of the plan, whichever thread
     * was faster. */
    atomic_store(&s->run_error.raised, 0);
    f.traced = false;
    for (int32_t i = fork->first; i < fork->end; ++i) {
        ln_resolved_step *resolved = &instance->steps[i];
        linnet_status status = s->watch.on ? ln_watch_look(&s->watch, resolved->step, error) : LINNET_OK;
        if (status != LINNET_OK) return status;
        if ((status = run_step(&f, resolved, 0)) != LINNET_OK) return ln_step_failed(s, resolved, status, error);
    }
    return LINNET_OK;
}
