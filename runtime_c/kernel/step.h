/* step.h - the step as a device sees it (linnet_step), and two services for kernels: memory at plan time, and the
 * record of an error during a run. A kernel that needs neither includes only kernel.h. */
#ifndef LN_STEP_H
#define LN_STEP_H

#include "kernel/kernel.h"
#include "linnet_device.h"

#include <stdatomic.h>

/* The facts about an operand that a device may ask for, in addition to its tensor. `variable` is NULL unless the
 * operand is the value of a variable. */
typedef struct ln_step_value {
    const char *name, *variable;
    uint32_t token;              /* the layout of the operand on the device; 0: dense */
    const linnet_device *device; /* the device that may describe the token; NULL if the token is 0 */
    int32_t value;               /* number of the value in the plan */
    int64_t readers;             /* as in linnet_device_tensor */
    uint64_t bytes;
} ln_step_value;

/* A step as a device sees it. */
struct linnet_step {
    ln_call call;
    const char *name;
    int32_t number;                      /* the number of the node (ln_work_node.number) */
    const ln_step_value *values;         /* one per input, then per operand of the epilogue, then per output */
    const struct linnet_body *bodies[2]; /* of a loop or a branch that a device runs whole; NULL: none */
};

/* A body as a device sees it. */
struct linnet_body {
    const linnet_step *steps;
    int32_t n_steps, n_inputs, n_outputs;
    const ln_tensor *tensors; /* the inputs, then the outputs; an absent output has no dtype */
    const ln_step_value *values;
};

/* Fills the public description of an operand, as much of it as out->struct_size has room for. Errors: INVALID_ARGUMENT
 * for a bad struct_size, UNSUPPORTED in a build without devices. */
linnet_status ln_device_tensor(const ln_tensor *t, const ln_step_value *value, linnet_device_tensor *out);

/* The record behind ln_buffers.error. The first thread to set `raised` fills the other fields. */
struct ln_run_error {
    atomic_int raised;
    const char *operand;
    int64_t index, low, high;
    char text[128]; /* the message of a user op that failed; `operand` is then the name of the op */
};

/* For `configure`: returns zeroed memory that lasts as long as the plan. Returns NULL when out of memory; the kernel
 * then returns LINNET_OUT_OF_MEMORY. */
void *ln_call_state(ln_call *call, size_t bytes);
/* Returns the allocator for temporary memory that `configure` frees itself. */
struct ln_memory *ln_call_memory(const ln_call *call);

/* Reports that an index, a length or an axis in an operand is not in [low, high]. `operand` says what it is and must
   outlive the run. Of several reports in a run, the first one is kept. Thread-safe. Returns LINNET_INDEX_OUT_OF_RANGE,
   which the kernel returns in turn. */
linnet_status ln_index_error(const ln_buffers *b, const char *operand, int64_t index, int64_t low, int64_t high);

#endif
