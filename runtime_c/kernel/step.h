/* step.h - the call behind a step: the part that an extension may read, and the record for errors of a running kernel.
 * Kernels themselves need only kernel.h. */
#ifndef LN_STEP_H
#define LN_STEP_H

#include "kernel/kernel.h"

#include <stdatomic.h>

/* A step as an extension sees it. */
struct linnet_step {
    const ln_call *call;
    const char *name;
};

/* The record behind ln_buffers.error. The first thread to set `raised` fills the other fields. */
struct ln_run_error {
    atomic_int raised;
    const char *operand;
    int64_t index, low, high;
    char text[128]; /* of a user op that failed; `operand` is then its name */
};

#endif
