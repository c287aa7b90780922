/* conv.c - convolutions and transposed ones: the kernels of conv.inc and conv_transpose.inc. */
#include "kernels_gpu/common/product.h"
#include "kernels_gpu/common/window.h"

static bool open(const lg_step *s, lg_window *w, bool turned) {
    const linnet_device_tensor *weights = &s->inputs[1];
    return weights->rank >= 3 && lg_window_open(w, s, &s->inputs[0], &s->result, weights->shape + 2, turned);
}

bool lg_can_conv(const lg_step *s) {
    lg_window w;
    return lg_can_multiply(s) && open(s, &w, false);
}

bool lg_can_conv_transpose(const lg_step *s) {
    lg_window w;
    return lg_can_multiply(s) && open(s, &w, true);
}

bool lg_can_pointwise(const lg_step *s) {
    lg_window w;
    if (!lg_can_conv(s) || !open(s, &w, false)) return false;
    for (int d = 0; d < LG_SPACE; ++d)
        if (w.kernel[d] != 1 || w.pad[d] != 0 || (w.out[d] - 1) * w.stride[d] >= w.in[d]) return false;
    return true;
}

typedef enum method { GENERAL, POINTWISE, TRANSPOSED } method;

static void build(const lg_step *s, lg_plan *plan, method how) {
    lg_window w;
    lg_launch *launch = lg_add(plan, how == TRANSPOSED ? "lg_conv_transpose" : "lg_conv");
    if (launch == NULL || !open(s, &w, how == TRANSPOSED)) {
        plan->failed = true;
        return;
    }
    const int64_t groups = lg_integer(s, "group", 1), outputs = w.out_channels / groups;
    if (how == POINTWISE && w.stride[0] * w.stride[1] * w.stride[2] == 1) { /* one row: no short ends in the image */
        w.in[2] = w.out[2] = w.out[0] * w.out[1] * w.out[2];
        w.in[0] = w.in[1] = w.out[0] = w.out[1] = 1;
    }
    const int rows = outputs >= 8 ? 8 : outputs >= 4 ? 4 : outputs >= 2 ? 2 : 1;
    lg_define(launch, "POINTWISE", how == POINTWISE);
    lg_define(launch, "LAST", w.y_last);
    lg_define(launch, "ROWS", rows);
    lg_pass(launch, LG_INPUT, 0);
    lg_pass(launch, LG_INPUT, 1);
    lg_pass(launch, LG_INPUT, lg_absent(s, 2) ? 1 : 2);
    lg_pass(launch, LG_OUTPUT, 0);
    lg_pass_integer(launch, w.channels / groups);
    lg_pass_space(launch, w.in);
    lg_pass_integer(launch, outputs);
    lg_pass_space(launch, w.out);
    lg_pass_space(launch, w.kernel);
    lg_pass_space(launch, w.stride);
    lg_pass_space(launch, w.dilation);
    lg_pass_space(launch, w.pad);
    lg_pass_integer(launch, groups);
    lg_pass_integer(launch, w.x_c);
    lg_pass_integer(launch, w.x_x);
    lg_pass_integer(launch, w.y_c);
    lg_pass_integer(launch, w.y_x);
    lg_define_product(plan, launch, s);
    lg_put_store(plan, launch, s);
    lg_put_file(launch, how == TRANSPOSED ? "conv_transpose" : "conv");
    const int64_t columns = how == TRANSPOSED ? w.out[2] : (w.out[2] + 3) / 4;
    const int64_t pixels = columns * w.out[1] * w.out[0], blocks = (outputs + rows - 1) / rows;
    if (w.y_last)
        lg_range(launch, blocks, pixels, w.batch * groups), lg_local(launch, 8, 8, 1);
    else
        lg_range(launch, pixels, blocks, w.batch * groups);
}

void lg_build_conv(const lg_step *s, lg_plan *plan) { build(s, plan, GENERAL); }
void lg_build_pointwise(const lg_step *s, lg_plan *plan) { build(s, plan, POINTWISE); }
void lg_build_conv_transpose(const lg_step *s, lg_plan *plan) { build(s, plan, TRANSPOSED); }
