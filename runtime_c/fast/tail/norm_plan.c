/* norm_plan.c - decides which softmax and normalization calls the SIMD kernels support, and their sizes.
 * The loops are in fast/tail/softmax.inc.c and fast/tail/norm.inc.c. */
#include "fast/tail/norm_plan.h"

#include "base/layout.h"
#include "kernel/common/lane_sum.h"
#include "kernel/step.h"

#include <math.h>

static bool keeps_dtype(const ln_call *call) { return call->outputs[0].dtype == call->inputs[0].dtype; }

static bool present(const ln_call *call, int i) { return i < call->n_inputs && call->inputs[i].dtype != LINNET_NONE; }

/* f16 and bf16 are widened into one line of f32 per thread. */
static void line_scratch(ln_call *call, int64_t length) {
    if (call->inputs[0].dtype != LINNET_F32) call->scratch_thread = (size_t)length * sizeof(float);
}

void ln_line_offsets(const ln_lines *lines, int64_t item, int64_t *x, int64_t *y) {
    *x = *y = 0;
    for (int i = lines->n_dims - 1; i >= 0; i--) {
        int64_t at = item % lines->dims[i];
        item /= lines->dims[i];
        *x += at * lines->x_strides[i], *y += at * lines->y_strides[i];
    }
}

/* Returns the dimension along which lines of a strided axis lie beside each other; -1 if there is none. */
static int lines_beside(const ln_call *call, int axis) {
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    if (x->dtype != LINNET_F32 || x->dims[axis] > LN_LANE_BLOCK) return -1;
    for (int i = 0; i < x->rank; i++)
        if (i != axis && x->dims[i] >= 4 && x->strides[i] == 1 && y->strides[i] == 1) return i;
    return -1;
}

bool ln_softmax_can(const ln_call *call) {
    const ln_softmax_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int axis = ln_axis(a->axis, x->rank);
    return keeps_dtype(call) &&
           (x->dims[axis] == 1 || (x->strides[axis] == 1 && y->strides[axis] == 1) || lines_beside(call, axis) >= 0);
}

linnet_status ln_softmax_configure(ln_call *call) {
    const ln_softmax_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    ln_lines *lines = call->state = ln_call_state(call, sizeof *lines);
    if (lines == NULL) return LINNET_OUT_OF_MEMORY;
    int axis = ln_axis(a->axis, x->rank);
    lines->length = x->dims[axis];
    call->work[0] = lines->length > 0 ? 1 : 0;
    const bool adjacent = x->dims[axis] == 1 || (x->strides[axis] == 1 && y->strides[axis] == 1);
    const int side = adjacent ? -1 : lines_beside(call, axis);
    lines->x_step = x->strides[axis], lines->y_step = y->strides[axis];
    if (side >= 0) lines->across = x->dims[side];
    for (int i = 0; i < x->rank; i++) {
        if (i == axis || i == side) continue;
        lines->dims[lines->n_dims] = x->dims[i];
        lines->x_strides[lines->n_dims] = x->strides[i];
        lines->y_strides[lines->n_dims++] = y->strides[i];
        call->work[0] *= x->dims[i];
    }
    if (side >= 0) call->work[0] *= ln_ceil_div(lines->across, LN_SOFTMAX_COLUMNS);
    call->grain = ln_max(1, 4096 / ln_max(1, lines->length * (side >= 0 ? LN_SOFTMAX_COLUMNS : 1)));
    call->flops = (uint64_t)(5 * ln_count(x));
    line_scratch(call, lines->length);
    return LINNET_OK;
}

static int64_t count_from(const ln_tensor *x, int begin) {
    int64_t count = 1;
    for (int i = begin; i < x->rank; i++) count *= x->dims[i];
    return count;
}

bool ln_layer_norm_can(const ln_call *call) {
    const ln_layer_norm_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0];
    if (!keeps_dtype(call)) return false;
    int64_t length = count_from(x, ln_axis(a->axis, x->rank));
    for (int i = 1; i < call->n_inputs; i++)
        if (present(call, i) && (call->inputs[i].dtype != x->dtype || ln_count(&call->inputs[i]) != length ||
                                 !ln_is_dense(&call->inputs[i])))
            return false;
    for (int i = 1; i < call->n_outputs; i++)
        if (call->outputs[i].dtype != LINNET_NONE &&
            (call->outputs[i].dtype != LINNET_F32 || !ln_is_dense(&call->outputs[i])))
            return false;
    return true;
}

static linnet_status norm_configure(ln_call *call, ln_norm_plan plan) {
    ln_norm_plan *p = call->state = ln_call_state(call, sizeof *p);
    if (p == NULL) return LINNET_OUT_OF_MEMORY;
    *p = plan;
    call->work[0] = plan.lines;
    call->grain = ln_max(1, 4096 / ln_max(1, plan.length));
    call->flops = (uint64_t)(8 * ln_count(&call->inputs[0]));
    line_scratch(call, plan.groups > 0 ? plan.length : 3 * plan.length); /* layer_norm: scale and bias too */
    return LINNET_OK;
}

linnet_status ln_layer_norm_configure(ln_call *call) {
    const ln_layer_norm_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0];
    ln_norm_plan plan = {.length = count_from(x, ln_axis(a->axis, x->rank)), .epsilon = a->epsilon, .rms = a->rms != 0};
    plan.lines = plan.length > 0 ? ln_count(x) / plan.length : 0;
    return norm_configure(call, plan);
}

bool ln_group_norm_can(const ln_call *call) {
    const ln_group_norm_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0];
    bool ok = keeps_dtype(call) && ln_axis(a->channel_axis, x->rank) == 1;
    for (int i = 1; i < call->n_inputs; i++) ok &= !present(call, i) || call->inputs[i].dtype == x->dtype;
    return ok;
}

linnet_status ln_group_norm_configure(ln_call *call) {
    const ln_group_norm_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0];
    int64_t groups = a->groups == 0 ? x->dims[1] : a->groups;
    ln_norm_plan plan = {.epsilon = a->epsilon, .groups = groups, .channels = groups > 0 ? x->dims[1] / groups : 0};
    plan.length = plan.channels * count_from(x, 2);
    plan.lines = plan.length > 0 ? x->dims[0] * groups : 0;
    return norm_configure(call, plan);
}

/* Fills *p. Returns false if x and y do not have the same layout without gaps. */
static bool batch_norm_view(const ln_call *call, ln_batch_norm_plan *p) {
    const ln_batch_norm_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int axis = ln_axis(a->channel_axis, x->rank);
    if (axis < 0) return false;
    *p = (ln_batch_norm_plan){.channels = x->dims[axis]};
    int64_t inner = count_from(x, axis + 1), total = ln_count(x);
    if (ln_is_dense(x) && ln_is_dense(y)) {
        p->channel_is_column = inner == 1;
        p->columns = p->channel_is_column ? p->channels : inner;
    } else if (axis == 1 && ln_is_channels_last(x) && ln_is_channels_last(y)) {
        p->channel_is_column = true;
        p->columns = p->channels;
    } else {
        return false;
    }
    p->rows = p->columns > 0 ? total / p->columns : 0;
    return true;
}

bool ln_batch_norm_can(const ln_call *call) {
    ln_batch_norm_plan plan;
    return batch_norm_view(call, &plan);
}

linnet_status ln_batch_norm_configure(ln_call *call) {
    ln_batch_norm_plan *p = call->state = ln_call_state(call, sizeof *p);
    if (p == NULL) return LINNET_OUT_OF_MEMORY;
    batch_norm_view(call, p);
    call->phases = 2;
    call->scratch_bytes = (size_t)(2 * p->channels) * sizeof(float);
    call->work[1] = p->rows;
    call->grain = ln_max(1, 4096 / ln_max(1, p->columns));
    call->flops = (uint64_t)(2 * p->rows * p->columns);
    return LINNET_OK;
}

void ln_batch_norm_factors(const ln_call *call, const ln_buffers *b, float *factor, float *shift) {
    const ln_batch_norm_attributes *a = call->attributes;
    const ln_batch_norm_plan *p = call->state;
    for (int64_t c = 0; c < p->channels; c++) {
        double v[5];
        for (int i = 1; i < 5; i++)
            v[i] = ln_load_f64(b->inputs[i], call->inputs[i].dtype, c * call->inputs[i].strides[0]);
        double f = v[1] / sqrt(v[4] + a->epsilon);
        factor[c] = (float)f, shift[c] = (float)(v[2] - v[3] * f);
    }
}
