/* pool_gradient.h - plans gradients of pools for the fast kernels. */
#ifndef LN_OPS_POOL_GRADIENT_H
#define LN_OPS_POOL_GRADIENT_H

#include "ops/pool.h"

/* `can` and `configure` of the fast kernels. Configure puts an ln_pool_plan into call->state. */
bool ln_pool_gradient_can(const ln_call *call);
linnet_status ln_pool_gradient_configure(ln_call *call);

#endif
