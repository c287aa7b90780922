/* copy.h - what the reference and the fast kernels of copies share. */
#ifndef LN_OPS_COPY_H
#define LN_OPS_COPY_H

#include "kernel/kernel.h"

/* Shared by the reference and the fast kernels: the plan in call->state, and the run of a plan that is `flat`. */
bool ln_copy_can(const ln_call *call);
void ln_copy_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
linnet_status ln_copy_configure(ln_call *call);
void ln_copy_flat(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end);

#endif
