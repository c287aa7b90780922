/* attention.h - attention in consecutive steps, as one kernel. */
#ifndef LG_ATTENTION_H
#define LG_ATTENTION_H

#include "kernels_gpu/common/gpu.h"

/* If the first steps are attention, softmax(f(q k^T)) v with a map f or none, and one kernel can run them, returns
 * their number, 3 or 4; else 0. The products and the softmax of them are then never stored: the claim is fused. The
 * plan, if it is not NULL, gets the launches, and *cost_ns, if it is not NULL, the modelled nanoseconds. */
int lg_match_attention(const lg_machine *machine, const linnet_step *const *steps, int count, lg_plan *plan,
                       double *cost_ns);

#endif
