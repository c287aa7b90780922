/* winograd_plan.h - plans convolutions by Winograd's algorithm. */
#ifndef LN_FAST_TAIL_WINOGRAD_PLAN_H
#define LN_FAST_TAIL_WINOGRAD_PLAN_H

#include "fast/tail/winograd.h"

/* The functions of the kernel's ln_kernel_code. Configure puts an ln_winograd with the f32 set of the ISA into
 * call->state. */
LN_PLANNING bool ln_winograd_can(const ln_call *call);
LN_PLANNING void ln_winograd_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
LN_PLANNING linnet_status ln_winograd_configure(ln_call *call, const ln_gemm_set *set);

#if defined(__aarch64__)
extern const ln_kernel_code ln_winograd__neon; /* runs with any set that reads and writes f32 */
#endif

#endif
