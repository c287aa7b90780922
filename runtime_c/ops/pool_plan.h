/* pool_plan.h - plans pools for the kernels with channels innermost. */
#ifndef LN_OPS_POOL_PLAN_H
#define LN_OPS_POOL_PLAN_H

#include "ops/pool.h"

bool ln_pool_can(const ln_call *call);
void ln_pool_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
linnet_status ln_pool_configure(ln_call *call);
/* The divisor for the average at one output position. */
int64_t ln_pool_count(const ln_pool_plan *p, int64_t oz, int64_t oy, int64_t ox, int64_t inside);

#endif
