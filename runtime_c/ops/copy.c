/* copy.c - the reference kernel of `copy`: runs the rectangles of copy_plan.c element by element.
 * The shape rules are in copy_infer.c, the fast runner in runtime_c/fast/tail/copy.inc.c. */
#include "ops/copy.h"

#include "base/layout.h"
#include "kernel/common/index.h"
#include "kernel/cost.h"
#include "ops/copy_operands.h"
#include "ops/copy_plan.h"

#include <string.h>

/* Tells whether the parameters that a plan needs are known. The shapes of the outputs tell the sizes of what is copied,
 * but not where it begins. */
bool ln_copy_can(const ln_call *call) {
    const ln_copy_attributes *a = call->attributes;
    if (ln_dtype_bits(call->outputs[0].dtype) < 8 && !(ln_is_dense(&call->inputs[0]) && ln_is_dense(&call->outputs[0])))
        return false;
    if (a->kind != LN_COPY_KIND_CONCAT && call->inputs[0].rank < 0) return false;
    for (int i = 1; a->kind == LN_COPY_KIND_SLICE && i < call->n_inputs; i++)
        if (call->inputs[i].dtype != LINNET_NONE && !call->inputs[i].data) return false;
    if (a->kind == LN_COPY_KIND_PAD) {
        int64_t begin[LN_MAX_RANK], end[LN_MAX_RANK];
        if (ln_copy_pads(a, call->inputs, call->n_inputs, begin, end) != LN_COPY_KNOWN) return false;
        if (call->n_inputs > 2 && call->inputs[2].dtype != LINNET_NONE &&
            call->inputs[2].dtype != call->outputs[0].dtype)
            return false;
    }
    return true;
}

/* A copy computes nothing, and reads no more than it writes. */
void ln_count_copy(const ln_call *call, ln_counts *counts) {
    (void)call;
    if (counts->read > counts->written) counts->read = counts->written;
}

/* Returns the innermost axis of more than one element; -1: none. */
static int inner_axis(const ln_tensor *t) {
    int inner = -1;
    for (int d = 0; d < t->rank; d++)
        if (t->dims[d] > 1 && (inner < 0 || t->strides[d] <= t->strides[inner])) inner = d;
    return inner;
}

/* Returns the axis of x along the innermost axis of y. */
static int source_axis(const ln_copy_attributes *a, int axis) {
    return a->kind == LN_COPY_KIND_TRANSPOSE && axis < a->perm.n ? (int)a->perm.v[axis] : axis;
}

void ln_copy_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    (void)kernel;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const double count = (double)ln_count(y) * (double)call->n_outputs;
    const int inner = inner_axis(y);
    if (x->rank != y->rank || inner < 0) return;
    const int from = source_axis(call->attributes, inner);
    const ln_copy_attributes *a = call->attributes;
    if (a->kind == LN_COPY_SHUFFLE && inner == a->axis) {
        counts->work[LN_RATE_MOVE] += count * (a->block > 2 && a->block < 5 ? 0.4 : 1);
        return;
    }
    if (x->dims[from] > 1 &&
        from != inner_axis(x)) { /* blocks are transposed in registers, unless an axis is shorter than a block */
        const int64_t shorter = ln_min(y->dims[inner], x->dims[inner_axis(x)]);
        counts->work[LN_RATE_MOVE] += count * ln_transpose_moves(shorter);
        return;
    }
    double run = (double)ln_min(x->dims[from], y->dims[inner]);
    for (int d = inner; inner == y->rank - 1 && d > 0; --d) { /* joins axes that are contiguous on both sides */
        const int s = source_axis(call->attributes, d), before = source_axis(call->attributes, d - 1);
        if (x->dims[s] != y->dims[d] || before != s - 1) break;
        run *= (double)ln_min(x->dims[before], y->dims[d - 1]);
    }
    /* The cost of a long run does not depend on its length. Short runs cost as much as their elements. */
    counts->work[LN_RATE_MOVE] += count * (run < 24 ? 1.1 : 26 / run);
}

linnet_status ln_copy_configure(ln_call *call) {
    ln_copy_plan *plan;
    int64_t total = 0; /* bytes written; a thread should get about 32 KiB or more */
    linnet_status status = ln_copy_make_plan(call, &plan);
    if (status) return status;
    for (int i = 0; i < call->n_outputs; i++)
        total += (int64_t)ln_bytes_of(call->outputs[i].dtype, ln_count(&call->outputs[i]));
    call->state = plan;
    call->work[0] = plan->items;
    call->grain = plan->flat ? 4096 : ln_max(1, plan->items * 32768 / ln_max(1, total));
    return LINNET_OK;
}

static void run_item(const ln_copy_plan *plan, const ln_copy_rectangle *r, const ln_buffers *b, int64_t item) {
    const void *source = r->input >= 0            ? b->inputs[r->input]
                         : plan->value_input >= 0 ? b->inputs[plan->value_input]
                                                  : plan->value;
    int cut = r->rank - (r->shape == LN_COPY_TRANSPOSE ? 2 : 1);
    int64_t row = item / r->panels, first = item % r->panels * r->panel, count = 1, from = r->source, to = r->target;
    int64_t dims[LN_COPY_MAX_DIMS];
    for (int d = cut - 1; d >= 0; d--) {
        int64_t c = row % r->dims[d].size;
        row /= r->dims[d].size;
        from += c * r->dims[d].source;
        to += c * r->dims[d].target;
    }
    for (int d = cut; d < r->rank; d++) dims[d] = r->dims[d].size;
    from += first * r->dims[cut].source;
    to += first * r->dims[cut].target;
    dims[cut] = ln_min(r->panel, r->dims[cut].size - first);
    for (int d = cut; d < r->rank; d++) count *= dims[d];
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, s = from, t = to;
        for (int d = r->rank - 1; d >= cut; d--) {
            int64_t c = rest % dims[d];
            rest /= dims[d];
            s += c * r->dims[d].source;
            t += c * r->dims[d].target;
        }
        ln_copy_element(b->outputs[r->output], t, source, s, plan->size);
    }
}

void ln_copy_flat(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end) {
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    size_t size = ln_dtype_size(y->dtype);
    for (int64_t i = begin; i < end; i++)
        ln_copy_element(b->outputs[0], ln_offset_of(y, i), b->inputs[0], ln_offset_of(x, i), size);
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    (void)thread;
    const ln_copy_plan *plan = call->state;
    if (plan->flat) {
        ln_copy_flat(call, b, begin, end);
        return LINNET_OK;
    }
    for (int64_t i = 0; i < plan->count; i++) {
        const ln_copy_rectangle *r = &plan->rectangles[i];
        if (!b->outputs[r->output]) continue;
        for (int64_t item = ln_max(begin, r->first_item); item < ln_min(end, r->first_item + r->items); item++)
            run_item(plan, r, b, item - r->first_item);
    }
    return LINNET_OK;
}

static void reference_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    (void)kernel;
    for (int i = 0; i < call->n_outputs; i++) counts->work[LN_RATE_MOVE] += (double)ln_count(&call->outputs[i]);
}

const ln_kernel_code ln_reference_copy = {
    .can = ln_copy_can, .cost = reference_cost, .configure = ln_copy_configure, .run = run};
