/* pool_plan.h - plans pools for the kernels with channels innermost. */
#ifndef LN_OPS_POOL_PLAN_H
#define LN_OPS_POOL_PLAN_H

#include "ops/pool.h"

/* `can`, `cost` and `configure` of the fast kernels. Configure puts an ln_pool_plan into call->state. */
bool ln_pool_can(const ln_call *call);
void ln_pool_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
linnet_status ln_pool_configure(ln_call *call);
/* Returns the divisor of the average at output position (oz, oy, ox). `inside` is the number of taps inside the input.
 */
int64_t ln_pool_count(const ln_pool_plan *p, int64_t oz, int64_t oy, int64_t ox, int64_t inside);

#ifdef __aarch64__
extern const ln_kernel_code ln_pool__neon; /* also runs what the kernel for f16 has planned */
#endif

#endif
