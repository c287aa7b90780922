/* assign.c - shape rule and reference kernel of `assign`. Plans commit assigned values at the end of a run (run/run.c).
 * The kernel is only for linnet_op_evaluate, where the result is the new value. */
#include "kernel/kernel.h"
#include "kernel/common/index.h"

linnet_status ln_infer_assign(const ln_infer *infer) {
    const ln_tensor *variable = &infer->inputs[0], *value = &infer->inputs[1];
    ln_tensor *y = &infer->outputs[0];
    bool fits = variable->rank == value->rank || variable->rank < 0 || value->rank < 0;
    for (int d = 0; fits && variable->rank >= 0 && d < value->rank; ++d)
        fits = variable->dims[d] == value->dims[d] || variable->dims[d] < 0 || value->dims[d] < 0;
    if (!fits) {
        char wanted[96], given[96];
        ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "assign: the shapes of the value and the variable differ");
        ln_expected(infer->error, "%s", ln_shape_text(variable->dims, variable->rank, wanted, sizeof wanted));
        return ln_got(infer->error, "%s", ln_shape_text(value->dims, value->rank, given, sizeof given)),
               LINNET_SHAPE_MISMATCH;
    }
    if (variable->dtype != value->dtype) {
        ln_fail(infer->error, LINNET_WRONG_DTYPE, "assign: the dtypes of the value and the variable differ");
        ln_expected(infer->error, "%s", linnet_dtype_name(variable->dtype));
        ln_got(infer->error, "%s", linnet_dtype_name(value->dtype));
        ln_hint(infer->error, "cast the value to the dtype of the variable");
        return LINNET_WRONG_DTYPE;
    }
    const ln_tensor *known = variable->rank >= 0 ? variable : value;
    y->dtype = variable->dtype;
    y->rank = known->rank;
    for (int d = 0; d < known->rank; ++d) y->dims[d] = known->dims[d];
    return LINNET_OK;
}

/* Copies element by element in logical order, because both tensors may have any strides. */
static void copy(const ln_tensor *from, const ln_tensor *to, const char *in, char *out, int d, int64_t at_in,
                 int64_t at_out) {
    if (d == from->rank) {
        ln_copy_element(out, at_out, in, at_in, ln_dtype_size(from->dtype));
        return;
    }
    for (int64_t i = 0; i < from->dims[d]; ++i)
        copy(from, to, in, out, d + 1, at_in + i * from->strides[d], at_out + i * to->strides[d]);
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    (void)thread;
    if (begin < end) copy(&call->inputs[1], &call->outputs[0], b->inputs[1], b->outputs[0], 0, 0, 0);
    return LINNET_OK;
}

const ln_kernel_code ln_reference_assign = {.run = run};
