/* cumsum.c - shape rule and kernel of `cumsum`: running sum or product along an axis.
 * Floats accumulate in f64, and integers wrap. If the axis is known at plan time, each row along it is a work item. */
#include "kernel/common/convert.h"
#include "kernel/common/index.h"
#include "kernel/cost.h"
#include "kernel/step.h"

linnet_status ln_infer_cumsum(const ln_infer *infer) {
    const ln_tensor *x = &infer->inputs[0];
    ln_same_shape(x, &infer->outputs[0]);
    infer->outputs[0].dtype = x->dtype;
    if (ln_count(&infer->inputs[1]) >= 0 && ln_count(&infer->inputs[1]) != 1) {
        ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "cumsum: the axis operand must be one number");
        ln_expected(infer->error, "1 element");
        return ln_got(infer->error, "%lld", (long long)ln_count(&infer->inputs[1]));
    }
    if (infer->inputs[1].data && x->rank >= 0 && ln_axis(ln_known_int(&infer->inputs[1], 0), x->rank) < 0) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "cumsum: the axis is out of range");
        ln_expected(infer->error, "an axis in [-%d, %d)", x->rank, x->rank);
        return ln_got(infer->error, "%lld", (long long)ln_known_int(&infer->inputs[1], 0));
    }
    return LINNET_OK;
}

/* Each sum depends on the sum before, so vectors do not help. */
void ln_count_cumsum(const ln_call *call, ln_counts *counts) {
    counts->work[LN_RATE_MOVE] += (double)ln_count(&call->inputs[0]);
}

static LN_PLANNING bool can(const ln_call *call) { return call->inputs[0].dtype == call->outputs[0].dtype; }

static LN_PLANNING linnet_status configure(ln_call *call) {
    const ln_tensor *x = &call->inputs[0];
    if (!call->inputs[1].data) /* the axis is known only at run time, so one item processes every row */
        return LINNET_OK;
    int axis = ln_axis(ln_known_int(&call->inputs[1], 0), x->rank);
    call->work[0] = x->dims[axis] > 0 ? ln_count(x) / x->dims[axis] : 0;
    return LINNET_OK;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    (void)thread;
    const ln_cumsum_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    bool known = call->inputs[1].data != NULL;
    int64_t wanted =
        known ? ln_known_int(&call->inputs[1], 0) : ln_load_wrapped(b->inputs[1], call->inputs[1].dtype, 0);
    int axis = ln_axis(wanted, x->rank);
    if (axis < 0) return ln_index_error(b, "axis", wanted, -x->rank, x->rank - 1);
    if (!known) begin = 0, end = x->dims[axis] > 0 ? ln_count(x) / x->dims[axis] : 0;
    int64_t n = x->dims[axis], dx = x->strides[axis], dy = y->strides[axis];
    ln_tensor rows_x = *x, rows_y = *y;
    rows_x.dims[axis] = rows_y.dims[axis] = 1;
    for (int64_t row = begin; row < end; row++) {
        int64_t at_x = ln_offset_of(&rows_x, row), at_y = ln_offset_of(&rows_y, row);
        double f = a->product ? 1.0 : 0.0;
        uint64_t u = a->product ? 1 : 0;
        for (int64_t k = 0; k < n; k++) {
            int64_t i = a->reverse ? n - 1 - k : k;
            if (ln_dtype_is_float(x->dtype)) {
                double v = ln_load_f64(b->inputs[0], x->dtype, at_x + i * dx);
                double next = a->product ? f * v : f + v;
                ln_store_float(b->outputs[0], y->dtype, at_y + i * dy, a->exclusive ? f : next);
                f = next;
            } else {
                uint64_t v = (uint64_t)ln_load_wrapped(b->inputs[0], x->dtype, at_x + i * dx);
                uint64_t next = a->product ? u * v : u + v;
                ln_store_wrapped(b->outputs[0], y->dtype, at_y + i * dy, (int64_t)(a->exclusive ? u : next));
                u = next;
            }
        }
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_cumsum = {.can = can, .configure = configure, .run = run};
