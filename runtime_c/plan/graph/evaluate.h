/* evaluate.h - computes one op immediately, outside any plan: for constant folding and linnet_op_evaluate. The call is
 * set up, run on one thread and discarded. */
#ifndef LN_EVALUATE_H
#define LN_EVALUATE_H

#include "base/memory.h"
#include "kernel/step.h"

/* Computes the outputs (dims and strides set) into data[i]. `data` of an input is NULL where it is absent or where the
 * op reads only its shape. `output_dims` is that of ln_buffers: LN_MAX_RANK entries per output, or NULL unless the op
 * is data-dependent. Working memory comes from `memory` and is freed again. Errors: UNSUPPORTED, OUT_OF_MEMORY,
 * INDEX_OUT_OF_RANGE. */
linnet_status ln_evaluate(ln_memory *memory, const ln_op *op, const void *attributes, int n_inputs,
                          const ln_tensor *inputs, int n_outputs, const ln_tensor *outputs, void *const *data,
                          ln_features features, bool reference, int64_t *output_dims, linnet_error *error);

/* Computes a call that has no state yet, into data[i]. The values of the inputs are in `operands`, or in inputs[i].data
 * if `operands` is NULL. As in a plan, inputs[i].data is set only if the shape rule knew the value. */
linnet_status ln_evaluate_call(ln_memory *memory, ln_call *call, bool reference, const void *const *operands,
                               void *const *data, int64_t *output_dims, linnet_error *error);

/* Turns the error that a kernel has recorded into a message. */
linnet_status ln_run_error_fail(const struct ln_run_error *raised, linnet_status status, linnet_error *error);

/* Fails with UNSUPPORTED and the dtypes of the operands, for a call that no kernel supports. */
linnet_status ln_no_kernel(const ln_call *call, linnet_error *error);

#endif
