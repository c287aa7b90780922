/* choose.h - chooses the kernel of a step by its modelled time, and plans its launches. */
#ifndef LG_CHOOSE_H
#define LG_CHOOSE_H

#include "kernels_gpu/common/gpu.h"

/* Returns the kernel that needs the least modelled time for the step, and that time in nanoseconds. Returns NULL if no
 * kernel can run the step. */
const lg_kernel *lg_choose(const lg_step *s, double *cost_ns);
/* Implements `cost` of a device. Returns nanoseconds, or a negative number if no kernel can run the step. Without
 * `modelled`, the cost is so low that the planner gives the device every step that it can run. */
double lg_cost(const lg_machine *machine, bool modelled, const linnet_step *step);
/* Implements `claim` of a device: plans the launches of the step, and fills *out. out->count is 0 if no kernel can run
 * the step. The caller frees the plan with lg_plan_free in both cases. */
void lg_claim_step(const lg_machine *machine, const linnet_step *step, lg_plan *plan, linnet_claim *out);
/* Plans the step of a claim again, for `prepare`. Returns 0 or a code of failures.h. The caller frees the plan. */
int lg_plan_work(const lg_machine *machine, const linnet_work *work, lg_plan *plan);

#endif
