/* range.c - shape rule and kernel of `range`: start, start + delta, ... below limit (above it for a negative delta).
 * Element i is start + i * delta, computed in f64 for floats so that errors do not accumulate. */
#include "kernel/kernel.h"
#include "kernel/common/convert.h"
#include "kernel/common/index.h"

#include <math.h>

/* Returns the number of elements; -1 if delta is 0 or the length is not finite. */
static int64_t length(const ln_tensor *x) {
    if (ln_dtype_is_float(x[0].dtype)) {
        double start = ln_load_f64(x[0].data, x[0].dtype, 0), limit = ln_load_f64(x[1].data, x[1].dtype, 0);
        double n = ceil((limit - start) / ln_load_f64(x[2].data, x[2].dtype, 0));
        return n >= 0.0 && n < 4611686018427387904.0 ? (int64_t)n : n < 0.0 ? 0 : -1;
    }
    int64_t start = ln_known_int(&x[0], 0), limit = ln_known_int(&x[1], 0), delta = ln_known_int(&x[2], 0);
    if (delta == 0) return -1;
    if (delta > 0 ? limit <= start : limit >= start) return 0;
    /* Computed in unsigned arithmetic, which can hold the distance between any two i64. */
    uint64_t distance = delta > 0 ? (uint64_t)limit - (uint64_t)start : (uint64_t)start - (uint64_t)limit;
    uint64_t step = delta > 0 ? (uint64_t)delta : 0 - (uint64_t)delta;
    uint64_t n = (distance - 1) / step + 1;
    return n <= INT64_MAX ? (int64_t)n : -1;
}

linnet_status ln_infer_range(const ln_infer *infer) {
    const ln_tensor *x = infer->inputs;
    ln_tensor *y = &infer->outputs[0];
    for (int i = 0; i < 3; i++) {
        int64_t n = ln_count(&x[i]);
        if (x[i].dtype != x[0].dtype) {
            ln_fail(infer->error, LINNET_WRONG_DTYPE, "range: start, limit and delta have different dtypes");
            ln_expected(infer->error, "%s", linnet_dtype_name(x[0].dtype));
            return ln_got(infer->error, "%s for operand %d", linnet_dtype_name(x[i].dtype), i);
        }
        if (x[i].rank >= 0 && n >= 0 && n != 1) {
            ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "range: start, limit and delta must be scalars");
            ln_expected(infer->error, "1 element");
            return ln_got(infer->error, "%lld elements in operand %d", (long long)n, i);
        }
    }
    y->dtype = x[0].dtype;
    y->rank = 1;
    y->dims[0] = -1;
    if (x[0].data && x[1].data && x[2].data) {
        y->dims[0] = length(x);
        if (y->dims[0] < 0) {
            ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "range: the length is not finite");
            return ln_expected(infer->error, "a delta that is not 0, and finite limits");
        }
    }
    return LINNET_OK;
}

static LN_PLANNING linnet_status configure(ln_call *call) {
    call->work[0] = ln_count(&call->outputs[0]);
    call->grain = 16384;
    return LINNET_OK;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    (void)thread;
    const ln_tensor *y = &call->outputs[0];
    if (ln_dtype_is_float(y->dtype)) {
        double start = ln_load_f64(b->inputs[0], y->dtype, 0), delta = ln_load_f64(b->inputs[2], y->dtype, 0);
        for (int64_t i = begin; i < end; i++)
            ln_store_float(b->outputs[0], y->dtype, i * y->strides[0], start + (double)i * delta);
    } else {
        uint64_t start = (uint64_t)ln_load_i64(b->inputs[0], y->dtype, 0);
        uint64_t delta = (uint64_t)ln_load_i64(b->inputs[2], y->dtype, 0);
        for (int64_t i = begin; i < end; i++)
            ln_store_wrapped(b->outputs[0], y->dtype, i * y->strides[0], (int64_t)(start + (uint64_t)i * delta));
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_range = {.configure = configure, .run = run};
