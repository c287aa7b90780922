/* can_run.h - whether this machine can run a kernel of the lists, whether the kernel takes a call, and an op's
 * reference. For tests and benchmarks that call kernels without a plan. */
#ifndef LN_CAN_RUN_H
#define LN_CAN_RUN_H

#include "kernel/kernel.h"

/* The features of this machine. They are asked for once: on a virtual machine, CPUID takes tens of microseconds. */
static inline ln_features machine_features(void) {
    static ln_features features;
    static bool asked;
    if (!asked) features = ln_detect_features();
    asked = true;
    return features;
}

static inline bool can_run(const ln_kernel *kernel) { return (kernel->needs & ~machine_features()) == 0; }

static inline bool takes(const ln_kernel *kernel, const ln_call *call) {
    return ln_kernel_refusal(kernel, call, false) == LINNET_REFUSAL_NONE;
}

static inline const ln_kernel *reference_of(int op) {
    const ln_kernel *k = ln_kernels;
    while (k->op != op || !(k->flags & LN_KERNEL_REFERENCE)) k++;
    return k;
}

#endif
