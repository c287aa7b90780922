/* step.h - the call behind a step: the part that an extension may read, and the record for errors of a running kernel.
 * Kernels themselves need only kernel.h. */
#ifndef LN_STEP_H
#define LN_STEP_H

#include "kernel/kernel.h"
#include "linnet_device.h"

#include <stdatomic.h>

/* What a device may know about an operand besides its tensor. */
typedef struct ln_step_value {
    const char *name, *variable;
    uint32_t token;              /* its layout on the device; 0: dense */
    const linnet_device *device; /* which may describe the token; NULL if the token is 0 */
    int32_t value;               /* number in the plan */
    int64_t readers;             /* linnet_device_tensor */
    uint64_t bytes;
} ln_step_value;

/* A step as a device sees it. */
struct linnet_step {
    ln_call call;
    const char *name;
    int32_t number;              /* of its node (ln_work_node.number) */
    const ln_step_value *values; /* inputs, operands of the epilogue, outputs */
};

/* Fills the public description of an operand, up to out->struct_size. Errors: INVALID_ARGUMENT. */
linnet_status ln_device_tensor(const ln_tensor *t, const ln_step_value *value, linnet_device_tensor *out);

/* The record behind ln_buffers.error. The first thread to set `raised` fills the other fields. */
struct ln_run_error {
    atomic_int raised;
    const char *operand;
    int64_t index, low, high;
    char text[128]; /* of a user op that failed; `operand` is then its name */
};

/* Zeroed memory that lasts as long as the plan; NULL when out of memory (return LINNET_OUT_OF_MEMORY). */
void *ln_call_state(ln_call *call, size_t bytes);
/* For memory that `configure` frees again. */
struct ln_memory *ln_call_memory(const ln_call *call);

/* Reports the only error that a kernel can have in a run: a data-dependent index out of range. The first report is
   kept. Thread-safe. Returns LINNET_INDEX_OUT_OF_RANGE, which the kernel returns in turn. */
linnet_status ln_index_error(const ln_buffers *b, const char *operand, int64_t index, int64_t low, int64_t high);

#endif
