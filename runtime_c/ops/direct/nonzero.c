/* nonzero.c - shape rule and kernel of `nonzero`: coordinates of the elements that are not zero, i64 [rank, n].
 * n is known only at run time. The kernel counts the elements, then writes the coordinates, and reports the true
 * dims. */
#include "kernel/cost.h"
#include "kernel/common/convert.h"
#include "kernel/common/index.h"

linnet_status ln_infer_nonzero(const ln_infer *infer) {
    ln_tensor *y = &infer->outputs[0];
    y->dtype = LINNET_I64;
    y->rank = 2;
    /* A scalar counts as a tensor of one dimension (like NumPy's atleast_1d). */
    y->dims[0] = infer->inputs[0].rank < 0 ? -1 : ln_max(infer->inputs[0].rank, 1);
    y->dims[1] = -1;
    if (infer->facts) infer->facts->most = ln_count(&infer->inputs[0]); /* every element may be nonzero */
    return LINNET_OK;
}

void ln_count_nonzero(const ln_call *call, ln_counts *counts) {
    counts->work[LN_RATE_MOVE] += (double)ln_count(&call->inputs[0]);
}

static LN_PLANNING bool can(const ln_call *call) { return call->inputs[0].rank >= 0; }

static bool is_zero(const void *data, int dtype, int64_t at) {
    if (ln_dtype_is_float(dtype)) return ln_load_f64(data, dtype, at) == 0.0; /* NaN counts as nonzero */
    return ln_load_wrapped(data, dtype, at) == 0;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    (void)begin;
    (void)end;
    (void)thread;
    const ln_tensor *x = &call->inputs[0];
    int rank = x->rank > 0 ? x->rank : 1;
    int64_t count = ln_count(x), n = 0, at = 0;
    int64_t *y = b->outputs[0];
    for (int64_t i = 0; i < count; i++) n += !is_zero(b->inputs[0], x->dtype, ln_offset_of(x, i));
    for (int64_t i = 0; i < count; i++) {
        if (is_zero(b->inputs[0], x->dtype, ln_offset_of(x, i))) continue;
        int64_t rest = i;
        if (x->rank == 0) y[at] = 0;
        for (int d = x->rank - 1; d >= 0; d--) {
            y[d * n + at] = rest % x->dims[d];
            rest /= x->dims[d];
        }
        at++;
    }
    if (b->output_dims) {
        b->output_dims[0] = rank;
        b->output_dims[1] = n;
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_nonzero = {.can = can, .run = run};
