/* resize_plan.c - decides which resizes the SIMD kernels support and in what order they process them; this part does
   not depend on the ISA. The loops are in fast/tail/resize.inc.c. */
#include "fast/tail/resize_plan.h"

#include "kernel/cost.h"
#include "kernel/step.h"
#include "ops/resize.h"

/* Returns the axis that has stride 1 in both x and y; -1: none. */
static int inner_axis(const ln_tensor *x, const ln_tensor *y) {
    for (int i = x->rank - 1; i >= 0; i--)
        if (x->strides[i] == 1 && y->strides[i] == 1 && (x->dims[i] > 1 || y->dims[i] > 1)) return i;
    return -1;
}

/* Returns the axis that the rows kernel interpolates along: the last resized axis, if the axes after it are contiguous
 * and not resized. width: the number of elements after it. -1: none. */
static int row_axis(const ln_call *call, unsigned active, int64_t *width) {
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int axis = -1, channel = inner_axis(x, y);
    for (int i = 0; i < x->rank; i++) axis = active >> i & 1 ? i : axis;
    if (axis < 0) return -1;
    *width = 1;
    if (channel >= 0 && channel != axis) {
        if (active >> channel & 1) return -1;
        *width = x->dims[channel];
    }
    bool steps =
        (x->dims[axis] == 1 || x->strides[axis] == *width) && (y->dims[axis] == 1 || y->strides[axis] == *width);
    return steps ? axis : -1;
}

static bool can(const ln_call *call, bool rows) {
    const ln_resize_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    if (x->dtype != y->dtype || !ln_resize_known(call) || a->coordinates == LN_RESIZE_COORDINATES_TF_CROP_AND_RESIZE)
        return false;
    unsigned active = ln_resize_active(call);
    int64_t width;
    int inner = rows ? row_axis(call, active, &width) : inner_axis(x, y), others = 0;
    if (inner < 0 || (!rows && (active >> inner & 1))) return false;
    for (int i = 0; i < x->rank; i++) others += i != inner && (active >> i & 1);
    return others <= (rows ? 1 : 3);
}

bool ln_resize_channels_can(const ln_call *call) { return can(call, false); }

bool ln_resize_rows_can(const ln_call *call) { return can(call, true); }

/* Pixels have a cost of their own, and dtypes other than f32 are converted. */
static void count_pixels(const ln_call *call, ln_counts *counts, int64_t width) {
    const int dtype = call->inputs[0].dtype;
    if (dtype != LINNET_F32) ln_scale_operations(counts, dtype == LINNET_I16 ? 2 : 1.5);
    counts->work[LN_RATE_MOVE] += 11 * (double)ln_count(&call->outputs[0]) / (double)ln_max(width, 8);
}

void ln_resize_rows_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    (void)kernel;
    int64_t width = 1;
    const int axis = row_axis(call, ln_resize_active(call), &width);
    count_pixels(call, counts, width);
    /* Rows that do not fit in a core's cache are faster pixel by pixel. */
    if (axis >= 0 && width * ln_max(call->inputs[0].dims[axis], call->outputs[0].dims[axis]) > 65536)
        ln_scale_operations(counts, 3);
}

void ln_resize_channels_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    (void)kernel;
    const int axis = inner_axis(&call->inputs[0], &call->outputs[0]);
    ln_scale_operations(counts, call->inputs[0].dtype == LINNET_F32 ? 1.7 : 5);
    count_pixels(call, counts, axis >= 0 ? call->outputs[0].dims[axis] : 1);
}

static linnet_status configure(ln_call *call, bool rows, ln_resize_plan **out) {
    static const int32_t no_index[1] = {0};
    static const float no_weight[1] = {1};
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    ln_resize_plan *p = *out = call->state = ln_call_state(call, sizeof *p);
    if (p == NULL) return LINNET_OUT_OF_MEMORY;
    linnet_status status = ln_resize_prepare(call, &p->tables);
    if (status != LINNET_OK) return status;
    int skip = p->inner = inner_axis(x, y); /* the axes that are not outer axes */
    if (rows) {
        p->inner = row_axis(call, ln_resize_active(call), &p->width);
        skip = skip < 0 ? p->inner : skip;
    }
    int slots = 0;
    for (int i = 0; i < x->rank; i++) slots += i != p->inner && i != skip && p->tables.axis[i].taps > 0;
    int slot = 3 - slots;
    for (int i = 0; i < slot; i++)
        p->slot[i] = (ln_resize_axis){.in = 1, .out = 1, .taps = 1, .index = no_index, .weight = no_weight};
    for (int i = 0; i < x->rank; i++) {
        if (i == p->inner || i == skip) continue;
        bool active = p->tables.axis[i].taps > 0;
        p->outer[p->n_outer++] = (ln_resize_outer){y->dims[i], x->strides[i], y->strides[i], active ? slot : -1};
        if (active) p->slot[slot++] = p->tables.axis[i];
    }
    call->flops = (uint64_t)ln_count(y);
    return LINNET_OK;
}

/* A work item is a line along the last outer axis. */
linnet_status ln_resize_channels_configure(ln_call *call) {
    ln_resize_plan *p;
    linnet_status status = configure(call, false, &p);
    for (int i = 0; i + 1 < (status == LINNET_OK ? p->n_outer : 0); i++) call->work[0] *= p->outer[i].out;
    return status;
}

/* A work item is one output row. A thread's scratch has the input row as f32, one kept row for each input row that the
 * output row needs, and the sum. A kept row is an input row that has been interpolated along `inner`. Joint
 * interpolation, which sums over both axes at once, keeps both neighbours of each element instead, or the input row
 * itself if elements are groups. */
linnet_status ln_resize_rows_configure(ln_call *call) {
    ln_resize_plan *p;
    linnet_status status = configure(call, true, &p);
    if (status != LINNET_OK) return status;
    for (int i = 0; i < p->n_outer; i++) call->work[0] *= p->outer[i].out;
    const ln_resize_axis *axis = &p->tables.axis[p->inner];
    bool joint = p->tables.joint, single = p->width == 1;
    p->kept = !joint ? axis->out * p->width : single ? 2 * axis->out : axis->in * p->width;
    if (joint && single) {
        float *split = ln_call_state(call, (size_t)(2 * axis->out + 1) * sizeof *split);
        if (split == NULL) return LINNET_OUT_OF_MEMORY;
        for (int64_t o = 0; o < 2 * axis->out; o++) split[o % 2 * axis->out + o / 2] = axis->weight[o];
        p->left = split, p->right = split + axis->out;
    }
    call->scratch_thread = (size_t)p->slot[2].taps * (sizeof(int64_t) + sizeof(float *)) +
                           (size_t)axis->taps * sizeof(float *) +
                           (size_t)((axis->in + axis->out) * p->width + p->slot[2].taps * p->kept) * sizeof(float);
    return LINNET_OK;
}
