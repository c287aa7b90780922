/* evaluate.h - computing one op at once, outside any plan: constant folding and linnet_op_evaluate.
 * The call is set up, run on one thread and forgotten. */
#ifndef LN_EVALUATE_H
#define LN_EVALUATE_H

#include "core/kernel.h"
#include "core/memory.h"

#include <stdatomic.h>

/* Computes outputs (dims and strides set) into data[i] from inputs, whose `data` is set (NULL where absent, or where
 * the op reads only the shape). `output_dims` is that of ln_buffers: LN_MAX_RANK entries per output, NULL unless the op
 * is data-dependent. Working memory comes from `memory` and is given back. Errors: UNSUPPORTED, OUT_OF_MEMORY,
 * INDEX_OUT_OF_RANGE. */
linnet_status ln_evaluate(ln_memory *memory, const ln_op *op, const void *attributes, int n_inputs,
                          const ln_tensor *inputs, int n_outputs, const ln_tensor *outputs, void *const *data, int isa,
                          bool reference, int64_t *output_dims, linnet_error *error);

/* The record behind ln_buffers.error: the first thread to set `raised` fills the rest. */
struct ln_run_error {
    atomic_int raised;
    const char *operand;
    int64_t index, low, high;
};
/* Turns it into a message. */
linnet_status ln_run_error_fail(const struct ln_run_error *raised, linnet_status status, linnet_error *error);

/* UNSUPPORTED with the operand types, for a call that no kernel takes. */
linnet_status ln_no_kernel(const ln_call *call, linnet_error *error);

#endif
