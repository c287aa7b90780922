/* choose.h - chooses the kernel of a step by its modelled time, and plans its launches. */
#ifndef LG_CHOOSE_H
#define LG_CHOOSE_H

#include "kernels_gpu/common/gpu.h"

/* The kernel that runs the step, and its modelled nanoseconds; NULL: none can. */
const lg_kernel *lg_choose(const lg_step *s, double *cost_ns);
/* `cost` of a device: nanoseconds; negative: no kernel can run the step. Without `modelled`, the device gets every step
 * that it can run. */
double lg_cost(const lg_machine *machine, bool modelled, const linnet_step *step);
/* `claim` of a device: plans the step, and fills the claim. Its count is 0 if no kernel can run the step. The caller
 * frees the plan. */
void lg_claim_step(const lg_machine *machine, const linnet_step *step, lg_plan *plan, linnet_claim *out);
/* Plans the step of a claim again, for `prepare`. Returns a code. The caller frees the plan. */
int lg_plan_work(const lg_machine *machine, const linnet_work *work, lg_plan *plan);

#endif
