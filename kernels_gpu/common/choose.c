/* choose.c - chooses the kernel of a step by its modelled time, and plans its launches. */
#include "kernels_gpu/common/choose.h"
#include "kernels_gpu/common/failures.h"
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/step.h"

#include <stdlib.h>
#include <string.h>

static const lg_kernel kernels[] = {
#define LG_LINE(op, name, can, build, percent) {op, name, can, build, percent},
#ifdef LG_CUDA_KERNELS
#include "kernels_gpu/cuda/kernels.inc" /* these come first, because the first of several kernels that cost the same runs */
#endif
#include "kernels_gpu/common/kernels.inc"
#undef LG_LINE
};

/* Returns the modelled time by the roofline model: the longer of the time to move the bytes and the time to compute. */
static double cost_of(const lg_kernel *kernel, const lg_step *s, const linnet_step_counts *counts) {
    const lg_machine *m = s->machine;
    const double share = kernel->percent / 100.0;
    const double moving = (counts->read + counts->written) / m->bandwidth;
    const double computing = counts->macs > 0 ? counts->macs / (m->macs * share) : 0;
    const double others = counts->operations / m->macs;
    const double busy = (computing > 0 ? moving : moving / share);
    return m->launch_ns + (busy > computing + others ? busy : computing + others);
}

const lg_kernel *lg_choose(const lg_step *s, double *cost_ns) {
    const lg_kernel *best = NULL;
    linnet_step_counts counts;
    linnet_step_counts_init(&counts);
    *cost_ns = -1;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; ++i) {
        const lg_kernel *k = &kernels[i];
        if (strcmp(k->op, s->op) != 0) continue;
        if (best == NULL && s->machine->host->step_get_counts(s->step, &counts) != LINNET_OK) return NULL;
        if (!k->can(s)) continue;
        const double cost = strcmp(k->name, s->machine->prefer) == 0 ? 0 : cost_of(k, s, &counts);
        if (best == NULL || cost < *cost_ns) best = k, *cost_ns = cost;
    }
    return best;
}

double lg_cost(const lg_machine *machine, bool modelled, const linnet_step *step) {
    double ns = -1;
    lg_step *s = malloc(sizeof *s);
    if (s == NULL) return -1;
    if (!lg_step_open(s, machine, step) || lg_choose(s, &ns) == NULL) ns = -1;
    free(s);
    if (ns < 0) return -1;
    return modelled ? ns : 1e-6 * ns; /* so low that the device gets every step that it can run */
}

/* Plans the step. Returns its kernel; NULL: none can run it. */
static const lg_kernel *plan_step(const lg_machine *machine, const linnet_step *step, lg_plan *plan) {
    double cost = 0;
    lg_step *s = malloc(sizeof *s);
    const lg_kernel *kernel = s != NULL && lg_step_open(s, machine, step) ? lg_choose(s, &cost) : NULL;
    if (kernel != NULL) kernel->build(s, plan);
    free(s);
    return plan->failed ? NULL : kernel;
}

void lg_claim_step(const lg_machine *machine, const linnet_step *step, lg_plan *plan, linnet_claim *out) {
    const lg_kernel *kernel = plan_step(machine, step, plan);
    out->count = kernel != NULL;
    if (kernel != NULL) out->kernel = kernel->name;
    out->scratch_bytes = plan->scratch_bytes;
    out->packed_bytes = plan->packed.length;
}

int lg_plan_work(const lg_machine *machine, const linnet_work *work, lg_plan *plan) {
    return work->count == 1 && plan_step(machine, work->steps[0], plan) != NULL ? 0 : LG_BAD_STEP;
}
