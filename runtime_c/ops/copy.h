/* copy.h - the kernel functions that the reference and the fast kernels of `copy` share. */
#ifndef LN_OPS_COPY_H
#define LN_OPS_COPY_H

#include "kernel/kernel.h"

/* `can`, `cost` and `configure` of both kernels. ln_copy_configure puts an ln_copy_plan (copy_plan.h) into call->state.
 * ln_copy_flat runs items [begin, end) of a plan that is `flat`; ln_copy_run runs the other plans. */
bool ln_copy_can(const ln_call *call);
void ln_copy_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
linnet_status ln_copy_configure(ln_call *call);
void ln_copy_flat(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end);

#endif
