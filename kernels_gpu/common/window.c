/* window.c - reads the windows of conv, conv_transpose and pool (kernels_gpu/common/window.h). */
#include "kernels_gpu/common/window.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/step.h"

enum { EXPLICIT, SAME_UPPER, SAME_LOWER, VALID }; /* auto_pad, docs/ops.md */

bool lg_window_open(lg_window *w, const lg_step *s, const linnet_device_tensor *x, const linnet_device_tensor *y,
                    const int64_t *kernel, bool turned) {
    const int rank = x->rank, space = rank - 2;
    if (space < 1 || space > LG_SPACE || y->rank != rank) return false;
    if (lg_count(x) > INT32_MAX || lg_count(y) > INT32_MAX) return false;
    const int axis = lg_axis(lg_integer(s, "channel_axis", 1), rank), first = axis == 1 ? 2 : 1;
    const int64_t padding = lg_integer(s, "auto_pad", EXPLICIT);
    *w = (lg_window){
        .last = axis != 1, .batch = x->shape[0], .channels = x->shape[axis], .out_channels = y->shape[axis]};
    for (int d = 0; d < LG_SPACE; ++d) {
        const int i = d - (LG_SPACE - space);
        w->in[d] = w->out[d] = w->kernel[d] = w->stride[d] = w->dilation[d] = 1;
        if (i < 0) continue;
        w->in[d] = x->shape[first + i], w->out[d] = y->shape[first + i], w->kernel[d] = kernel[i];
        w->stride[d] = lg_item(s, "strides", i, 1), w->dilation[d] = lg_item(s, "dilations", i, 1);
        w->pad[d] = padding == EXPLICIT ? lg_item(s, "pads", i, 0) : 0;
        const int64_t reach = (w->kernel[d] - 1) * w->dilation[d] + 1;
        /* The known shape of the output determines the total padding. */
        const int64_t output_padding = turned ? lg_item(s, "output_padding", i, 0) : 0;
        const int64_t all = turned ? (w->in[d] - 1) * w->stride[d] + output_padding + reach - w->out[d]
                                   : (w->out[d] - 1) * w->stride[d] + reach - w->in[d];
        const bool same = padding == SAME_UPPER || padding == SAME_LOWER;
        if (same || (turned && lg_items(s, "output_shape") > 0)) {
            const int64_t total = all > 0 ? all : 0;
            w->pad[d] = padding == SAME_UPPER ? total / 2 : total - total / 2;
        }
    }
    const int64_t in = w->in[0] * w->in[1] * w->in[2], out = w->out[0] * w->out[1] * w->out[2];
    w->x_last = w->last || lg_is_last(x), w->y_last = w->last || lg_is_last(y);
    w->x_c = w->x_last ? 1 : in, w->x_x = w->x_last ? w->channels : 1;
    w->y_c = w->y_last ? 1 : out, w->y_x = w->y_last ? w->out_channels : 1;
    return true;
}

void lg_pass_space(lg_launch *launch, const int64_t *values) {
    for (int d = 0; d < LG_SPACE; ++d) lg_pass_integer(launch, values[d]);
}

void lg_add_sum_parts(const lg_step *s, lg_plan *plan, int64_t parts, int64_t count) {
    plan->scratch_bytes = (uint64_t)(parts * count) * sizeof(float);
    lg_launch *launch = lg_add(plan, "lg_sum_parts");
    if (launch == NULL) return;
    lg_define_operand(launch, "Y", s->outputs[0].dtype);
    lg_pass(launch, LG_SCRATCH, 0);
    lg_pass(launch, LG_OUTPUT, 0);
    lg_pass_integer(launch, parts);
    lg_pass_integer(launch, count);
    lg_put_file(launch, "sum_parts");
    lg_range(launch, count, 1, 1);
    plan->failed |= launch->source.failed;
}
