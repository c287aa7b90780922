/* can_run.h - whether this machine can run a kernel of the list.
 * For tests and benchmarks that call kernels without a plan. */
#ifndef LN_CAN_RUN_H
#define LN_CAN_RUN_H

#include "kernel/kernel.h"

static inline bool can_run(const ln_kernel *kernel) { return (kernel->needs & ~ln_detect_features()) == 0; }

#endif
