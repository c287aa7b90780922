/* candidates.c - says which kernels could run a step of a plan, at what cost, and why the others cannot, and what each
 * pass of planning changed (linnet_ext.h). Reports the lines of a tuning file that had no effect. */
#include "plan/candidates.h"

#include "base/platform_locks.h"
#include "base/structs.h"
#include "dispatch/dispatch.h"
#include "kernel/cost.h"
#include "kernel/cpu.h"
#include "plan/compile/pipeline.h"
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

linnet_status linnet_plan_get_pass(const linnet_plan *plan, int i, linnet_plan_pass *out) {
    if (plan == NULL || plan->changes == NULL || i < 0 || i >= LN_PASSES) return LINNET_INVALID_ARGUMENT;
    const ln_pass_change *c = &plan->changes[i];
    const linnet_plan_pass pass = {.name = ln_pass_name(i),
                                   .ran = c->ran,
                                   .added = c->added,
                                   .removed = c->removed,
                                   .moved = c->moved,
                                   .fused = c->fused[1] - c->fused[0],
                                   .nodes_before = c->nodes[0],
                                   .nodes_after = c->nodes[1],
                                   .values_before = c->values[0],
                                   .values_after = c->values[1],
                                   .bytes_before = c->bytes[0],
                                   .bytes_after = c->bytes[1]};
    return LN_GIVE(linnet_plan_pass, bytes_after, &pass, out);
}

#ifdef LN_WITHOUT_TUNING

linnet_status linnet_plan_get_candidate(const linnet_plan *plan, int step, int i, linnet_plan_candidate *out) {
    (void)plan, (void)step, (void)i, (void)out;
    return LINNET_UNSUPPORTED;
}

size_t linnet_plan_get_key(const linnet_plan *plan, int step, char *text, size_t size) {
    (void)plan, (void)step;
    if (size > 0) text[0] = 0;
    return 0;
}

void ln_report_tuning(const linnet_plan *plan) { (void)plan; }

#else

/* Returns the step with this number if a kernel runs it, else NULL. */
static const ln_step *step_at(const linnet_plan *plan, int step) {
    if (plan == NULL || step < 0 || step >= plan->program.n_steps) return NULL;
    const ln_step *found = &plan->program.steps[step];
    return found->kind == LN_STEP_KERNEL ? found : NULL;
}

/* The names of the features in the set, separated by "and". */
static void name_features(ln_features set, char *text, size_t size) {
    size_t used = 0;
    for (const ln_isa_set *s = ln_isa_sets; s->name[0] != 0 && used < size; ++s) {
        if (s->mark == 0 || (s->mark & set) == 0) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? " and " : "", s->name);
        set &= ~s->mark;
    }
    if (set != 0 && used < size) snprintf(text + used, size - used, "%sother features", used > 0 ? " and " : "");
}

static void explain(const linnet_plan *plan, const ln_call *call, const ln_kernel *kernel, linnet_plan_candidate *c) {
    char names[48] = "";
    const ln_features missing = kernel->needs & ~call->features, lacking = missing & ~ln_detect_features();
    switch ((linnet_refusal)c->refusal) {
    case LINNET_REFUSAL_NONE: break;
    case LINNET_REFUSAL_FEATURES:
        name_features(lacking != 0 ? lacking : missing, names, sizeof names);
        snprintf(c->why, sizeof c->why, "needs %s, which %s", names,
                 lacking != 0      ? "this machine does not have"
                 : plan->reference ? "a reference plan does not use"
                                   : "isa_max excludes");
        break;
    case LINNET_REFUSAL_REFERENCE:
        snprintf(c->why, sizeof c->why, "is not a reference kernel, and the plan uses no others");
        break;
    case LINNET_REFUSAL_EPILOGUE: snprintf(c->why, sizeof c->why, "does not apply a fused map"); break;
    case LINNET_REFUSAL_DTYPES: snprintf(c->why, sizeof c->why, "does not take these dtypes"); break;
    case LINNET_REFUSAL_LAYOUT: snprintf(c->why, sizeof c->why, "does not take these layouts"); break;
    case LINNET_REFUSAL_CALL:
        snprintf(c->why, sizeof c->why, "does not cover these shapes, strides or attributes");
        break;
    }
}

linnet_status linnet_plan_get_candidate(const linnet_plan *plan, int step, int i, linnet_plan_candidate *out) {
    const ln_step *s = step_at(plan, step);
    if (s == NULL || i < 0) return LINNET_INVALID_ARGUMENT;
    const ln_kernel *k = ln_kernels;
    for (; k->code != NULL && (k->op != s->call.op->id || i-- > 0); ++k) {
    }
    if (k->code == NULL) return LINNET_INVALID_ARGUMENT;
    linnet_plan_candidate own = {
        .kernel = k->name, .chosen = k == s->kernel, .reference = (k->flags & LN_KERNEL_REFERENCE) != 0};
    /* Packing frees constants, under the lock of the model. */
    ln_lock_exclusive(&plan->model->lock);
    const bool gone = plan->program.listed && s->folded != 0;
    if (!gone) {
        own.refusal = ln_kernel_refusal(k, &s->call, plan->reference);
        if (own.refusal == LINNET_REFUSAL_NONE) own.cost_ns = ln_kernel_cost(k, &s->call);
        own.tuned = own.chosen && ln_tuning_find(plan->tuning, &s->call) == k;
    }
    ln_unlock(&plan->model->lock);
    if (gone) return LINNET_INVALID_ARGUMENT;
    explain(plan, &s->call, k, &own);
    return LN_GIVE(linnet_plan_candidate, why, &own, out);
}

size_t linnet_plan_get_key(const linnet_plan *plan, int step, char *text, size_t size) {
    const ln_step *s = step_at(plan, step);
    size_t length = 0;
    if (size > 0) text[0] = 0;
    if (s != NULL) ln_call_key(&s->call, text, size, &length);
    return length;
}

static int refused(const linnet_plan *plan, const ln_program *program, const ln_step **first) {
    int count = 0;
    for (int32_t i = 0; i < program->n_steps; ++i) {
        const ln_step *s = &program->steps[i];
        for (int k = 0; k < 2; ++k)
            if (s->bodies[k] != NULL) count += refused(plan, s->bodies[k], first);
        if (s->kind != LN_STEP_KERNEL) continue;
        const ln_kernel *kernel = ln_tuning_find(plan->tuning, &s->call);
        if (kernel == NULL || kernel == s->kernel) continue;
        if (count++ == 0 && *first == NULL) *first = s;
    }
    return count;
}

void ln_report_tuning(const linnet_plan *plan) {
    const ln_step *first = NULL;
    const int count = plan->tuning != NULL ? refused(plan, &plan->program, &first) : 0;
    if (count > 0)
        ln_log(&plan->model->log, LINNET_LOG_WARNING,
               "%d steps do not use the tuning file's kernel, because it cannot run them: %s instead of %s in %s%s",
               count, first->kernel->name, ln_tuning_find(plan->tuning, &first->call)->name, first->name,
               count > 1 ? ", ..." : "");
}

#endif
