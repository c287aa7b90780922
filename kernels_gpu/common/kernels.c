/* kernels.c - chooses the kernel of a step by its modelled time (kernels_gpu/common/gpu.h). */
#include "kernels_gpu/common/gpu.h"

#include <string.h>

static const lg_kernel kernels[] = {
#define LG_LINE(op, name, can, build, percent) {op, name, can, build, percent},
#ifdef LG_CUDA_KERNELS
#include "kernels_gpu/cuda/kernels.inc" /* first: of kernels that cost the same, because memory limits them, these run */
#endif
#include "kernels_gpu/common/kernels.inc"
#undef LG_LINE
};

/* Roofline: the longer of moving the bytes and of computing. */
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
