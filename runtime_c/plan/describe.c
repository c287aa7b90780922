/* describe.c - what a plan says of its memory, its steps, its inputs and outputs, and of the constants that it packs.
 */
#include "plan/describe.h"

#include "base/layout.h"
#include "base/platform_locks.h"
#include "base/structs.h"
#include "kernel/user.h"
#include "plan/compile/stored.h"
#include "plan/plan.h"
#include "linnet_ext.h"

#include <string.h>

linnet_status linnet_plan_get_info(const linnet_plan *plan, linnet_plan_info *info) {
    return plan != NULL ? LN_GIVE(linnet_plan_info, plan_ns, &plan->info, info) : LINNET_INVALID_ARGUMENT;
}

void ln_step_describe(const linnet_plan *plan, const ln_step *step, linnet_step_info *info) {
    memset(info, 0, sizeof *info);
    info->name = step->name;
    info->op = step->call.op != NULL ? step->call.op->name : "transfer";
    const bool user = step->call.op != NULL && (step->call.op->flags & LN_OP_REGISTERED) && ln_on_cpu(step->device);
    static const char kinds[][9] = {[LN_STEP_UPLOAD] = "upload", [LN_STEP_DOWNLOAD] = "download",
                                    [LN_STEP_COPY] = "copy",     [LN_STEP_WAIT] = "wait",
                                    [LN_STEP_LOOP] = "loop",     [LN_STEP_BRANCH] = "branch"};
    info->kernel = user                           ? ln_user_host(step->call.op)->name
                   : step->kernel != NULL         ? step->kernel->name
                   : step->kind == LN_STEP_DEVICE ? step->claim->kernel
                                                  : kinds[step->kind];
    info->layout = ln_layout_name(step->call.n_outputs > 0 ? step->call.outputs[0].layout : LN_LAYOUT_DENSE);
    info->device = ln_on_cpu(step->device) ? "cpu" : plan->devices[step->device - 1].is.name;
    static const char reasons[][8] = {"", "cannot", "cost", "hint", "chosen", "refused", "scope"};
    const bool copied = step->kind == LN_STEP_COPY && !ln_on_cpu(step->inputs[0].device);
    info->source = copied ? plan->devices[step->inputs[0].device - 1].is.name : "";
    info->placed = reasons[step->reason];
    info->fused = step->fused;
    info->bytes = step->bytes;
    info->flops = step->call.flops;
    info->modelled_ns = (uint64_t)step->ns;
    const ln_program *p = &plan->program;
    const int32_t at = (int32_t)(step - p->steps);
    for (int32_t f = 0; f < p->n_forks; ++f) {
        if (at < p->forks[f].first || at >= p->forks[f].end) continue;
        info->fork = f + 1;
        while (p->forks[f].branches[info->branch++].end <= at) continue;
    }
}

linnet_status linnet_plan_get_step(const linnet_plan *plan, int i, linnet_step_info *info) {
    linnet_step_info step;
    if (plan == NULL || i < 0 || i >= plan->program.n_steps) return LINNET_INVALID_ARGUMENT;
    ln_step_describe(plan, &plan->program.steps[i], &step);
    return LN_GIVE(linnet_step_info, not_a_number, &step, info);
}

int linnet_plan_input_count(const linnet_plan *plan) { return plan ? plan->program.n_inputs : 0; }

int linnet_plan_output_count(const linnet_plan *plan) { return plan ? plan->n_outputs : 0; }

linnet_status linnet_plan_get_input(const linnet_plan *plan, int i, linnet_tensor_info *out) {
    if (plan == NULL || i < 0 || i >= plan->program.n_inputs) return LINNET_INVALID_ARGUMENT;
    return ln_tensor_info(&plan->program.inputs[i].tensor, plan->program.inputs[i].name, out);
}

linnet_status linnet_plan_get_output(const linnet_plan *plan, int i, linnet_tensor_info *out) {
    if (plan == NULL || i < 0 || i >= plan->n_outputs) return LINNET_INVALID_ARGUMENT;
    return ln_tensor_info(&plan->outputs[i].tensor, plan->outputs[i].name, out);
}

int linnet_plan_find_input(const linnet_plan *plan, const char *name) {
    for (int32_t i = 0; plan != NULL && name != NULL && i < plan->program.n_inputs; ++i)
        if (strcmp(plan->program.inputs[i].name, name) == 0) return i;
    return -1;
}

int linnet_plan_find_output(const linnet_plan *plan, const char *name) {
    for (int32_t i = 0; plan != NULL && name != NULL && i < plan->n_outputs; ++i)
        if (strcmp(plan->outputs[i].name, name) == 0) return i;
    return -1;
}

linnet_status linnet_plan_get_packed(const linnet_plan *plan, int i, void *to, linnet_packed *out) {
    linnet_packed own = {.struct_size = sizeof own};
    if (plan == NULL || i < 0) return LINNET_INVALID_ARGUMENT;
    linnet_model *model = plan->model;
    ln_lock_exclusive(&model->lock); /* the first session frees values that it has packed */
    const ln_step *step = plan->program.listed ? NULL : ln_stored_step(&plan->program, &i, own.key);
    if (step != NULL) {
        own.kernel = step->kernel->name;
        own.bytes = ln_round_up(step->call.packed_bytes, LN_ALIGNMENT);
        if (to != NULL && step->stored >= 0)
            memcpy(to, model->stored[step->stored].segment->data, (size_t)own.bytes);
        else if (to != NULL)
            step->kernel->code->pack(&step->call, memset(to, 0, (size_t)own.bytes));
    }
    ln_unlock(&model->lock);
    return step != NULL ? LN_GIVE(linnet_packed, key, &own, out) : LINNET_INVALID_ARGUMENT;
}
