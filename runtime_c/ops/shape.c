/* shape.c - shape rule and kernel of `shape`: dimensions [start, end) of the input as 1-D i64.
 * The plan folds the op as soon as the shape is known. The kernel is for plans that keep every node. */
#include "kernel/kernel.h"
#include "kernel/common/index.h"

/* Clamps the attributes to [0, rank]; negative ones count from the end. */
static void bounds(const ln_shape_attributes *a, int rank, int *start, int *end) {
    int64_t s = a->start < 0 ? a->start + rank : a->start;
    int64_t e = a->end < 0 ? a->end + rank : a->end;
    s = ln_min(ln_max(s, 0), rank);
    e = ln_min(ln_max(e, 0), rank);
    *start = (int)s;
    *end = (int)(e > s ? e : s);
}

linnet_status ln_infer_shape(const ln_infer *infer) {
    const ln_tensor *x = &infer->inputs[0];
    ln_tensor *y = &infer->outputs[0];
    int start, end;
    y->dtype = LINNET_I64;
    y->rank = 1;
    y->dims[0] = -1;
    if (x->rank >= 0) {
        bounds(infer->attributes, x->rank, &start, &end);
        y->dims[0] = end - start;
    }
    return LINNET_OK;
}

static bool can(const ln_call *call) { return call->inputs[0].rank >= 0; }

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    (void)begin;
    (void)end;
    (void)thread;
    int first, last;
    bounds(call->attributes, call->inputs[0].rank, &first, &last);
    for (int d = first; d < last; d++)
        ((int64_t *)b->outputs[0])[(d - first) * call->outputs[0].strides[0]] = call->inputs[0].dims[d];
    return LINNET_OK;
}

const ln_kernel_code ln_reference_shape = {.can = can, .run = run};
