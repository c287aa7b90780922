/* plan_devices.c - what a plan says about devices: the memory and the steps on each, and which steps fell back to the
 * CPU. */
#include "plan/plan_devices.h"

#include "base/structs.h"
#include "plan/plan.h"

#include <stdio.h>

linnet_status linnet_plan_get_device(const linnet_plan *plan, int i, linnet_plan_device_info *info) {
    if (plan == NULL || i < 0 || i >= ln_device_count(plan->n_devices)) return LINNET_INVALID_ARGUMENT;
    const ln_device_memory *m = &plan->program.devices[i + 1];
    linnet_plan_device_info own = {.name = plan->devices[i].is.name,
                                   .steps = m->steps,
                                   .nodes = m->nodes,
                                   .activations = m->activations,
                                   .scratch = m->scratch,
                                   .packed = m->packed,
                                   .constants = m->constants,
                                   .variables = m->variables,
                                   .own = m->own};
    own.total = m->activations + m->scratch + m->packed + m->constants + m->variables + m->own;
    return LN_GIVE(linnet_plan_device_info, total, &own, info);
}

linnet_status ln_check_devices(const linnet_plan *plan, uint64_t most, linnet_error *error) {
    linnet_plan_device_info info = {.struct_size = sizeof info};
    for (int i = 0; most > 0 && linnet_plan_get_device(plan, i, &info) == LINNET_OK; ++i) {
        if (info.total <= most) continue;
        ln_fail(error, LINNET_TOO_LARGE,
                "the plan needs more memory on device %s than linnet_plan_config.max_device_bytes allows", info.name);
        ln_expected(error, "at most %llu bytes", (unsigned long long)most);
        ln_got(error, "%llu bytes", (unsigned long long)info.total);
        return ln_hint(error, "raise linnet_plan_config.max_device_bytes, or use smaller shapes");
    }
    return LINNET_OK;
}

enum { NAMED = 8 };

typedef struct fallback {
    int on_cpu, on_devices, named;
    const ln_op *ops[NAMED];
    const ln_step *refused;
} fallback;

/* Counts the steps of the program and of its bodies, and collects the ops of those on the CPU. */
static void count(const ln_program *program, fallback *f) {
    for (int32_t i = 0; i < program->n_steps; ++i) {
        const ln_step *step = &program->steps[i];
        for (int k = 0; k < 2 && step->bodies[k] != NULL; ++k) count(step->bodies[k], f);
        if (step->call.op == NULL) continue; /* a transfer */
        if (step->reason == LN_REASON_REFUSED) f->refused = step;
        if (!ln_on_cpu(step->device)) {
            ++f->on_devices;
            continue;
        }
        ++f->on_cpu;
        int k = 0;
        while (k < f->named && f->ops[k] != step->call.op) ++k;
        if (k == f->named && k < NAMED) f->ops[f->named++] = step->call.op;
    }
}

void ln_report_fallback(const linnet_plan *plan) {
    fallback f = {.on_cpu = 0};
    char names[320] = "";
    size_t used = 0;
    count(&plan->program, &f);
    for (int k = 0; k < f.named; ++k) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", k > 0 ? ", " : "", f.ops[k]->name);
        if (used >= sizeof names) used = sizeof names - 1;
    }
    if (f.refused != NULL)
        ln_log(&plan->model->log, LINNET_LOG_WARNING,
               "the plan was made again, because a device refused steps that it had offered to run, such as %s",
               f.refused->name);
    if (f.on_cpu > 0)
        ln_log(&plan->model->log, f.on_devices > 0 ? LINNET_LOG_INFO : LINNET_LOG_WARNING,
               "%d of %d steps run on the CPU, because no device can run them or would be faster: %s%s", f.on_cpu,
               f.on_cpu + f.on_devices, names, f.named == NAMED ? ", ..." : "");
}
