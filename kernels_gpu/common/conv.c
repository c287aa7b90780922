/* conv.c - launches the kernels of convolutions and transposed convolutions, which are in conv.inc, conv_transpose.inc
 * and conv_local.inc. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/product.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"
#include "kernels_gpu/common/window.h"

#include <string.h>

enum { TILE = 64, TILE_ITEMS = 256, TILE_DEPTH = 16 }; /* the sizes in conv_local.inc */

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

/* Tells whether the kernels of conv_local.inc can run the step. They need floats and many channels, and run on a
 * processor only if the option `kernel` names them. */
static bool can_local(const lg_step *s, bool turned, const char *name) {
    lg_window w;
    const lg_machine *m = s->machine;
    if (!lg_can_multiply(s) || !lg_is_float(s->inputs[0].dtype) || !open(s, &w, turned)) return false;
    if (m->most_items < TILE_ITEMS || m->local_bytes < 2 * TILE_DEPTH * TILE * sizeof(float)) return false;
    if (turned && w.stride[0] * w.stride[1] * w.stride[2] != 1)
        return false; /* most taps would read zeros between the elements */
    const int64_t groups = lg_integer(s, "group", 1);
    if (strcmp(m->prefer, name) == 0) return true;
    return !m->is_cpu && w.channels / groups >= TILE_DEPTH && w.out_channels / groups >= TILE / 2;
}

bool lg_can_conv_local(const lg_step *s) { return can_local(s, false, "conv_local"); }
bool lg_can_conv_transpose_local(const lg_step *s) { return can_local(s, true, "conv_transpose_local"); }

typedef enum method { GENERAL, POINTWISE, TRANSPOSED, LOCAL, LOCAL_TRANSPOSED } method;

static void build(const lg_step *s, lg_plan *plan, method how) {
    lg_window w;
    const bool turned = how == TRANSPOSED || how == LOCAL_TRANSPOSED, local = how == LOCAL || how == LOCAL_TRANSPOSED;
    lg_launch *launch = lg_add(plan, local ? "lg_conv_local" : turned ? "lg_conv_transpose" : "lg_conv");
    if (launch == NULL || !open(s, &w, turned)) {
        plan->failed = true;
        return;
    }
    const int64_t groups = lg_integer(s, "group", 1), outputs = w.out_channels / groups;
    /* Treats the image as one row, so that only this row has a short end. */
    if (how == POINTWISE && w.stride[0] * w.stride[1] * w.stride[2] == 1) {
        w.in[2] = w.out[2] = w.out[0] * w.out[1] * w.out[2];
        w.in[0] = w.in[1] = w.out[0] = w.out[1] = 1;
    }
    const int rows = outputs >= 8 ? 8 : outputs >= 4 ? 4 : outputs >= 2 ? 2 : 1;
    lg_define(launch, "POINTWISE", how == POINTWISE);
    lg_define(launch, "TURNED", turned);
    lg_define(launch, "LAST", local ? w.x_last : w.y_last); /* the order in which items process channels and pixels */
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
    if (local) lg_pass_integer(launch, w.batch);
    lg_define_product(plan, launch, s);
    lg_put_store(plan, launch, s);
    lg_put_file(launch, local ? "conv_local" : turned ? "conv_transpose" : "conv");
    if (local) {
        const int64_t all = w.batch * w.out[0] * w.out[1] * w.out[2];
        lg_range(launch, (all + TILE - 1) / TILE * TILE_ITEMS, (outputs + TILE - 1) / TILE, groups);
        lg_local(launch, TILE_ITEMS, 1, 1);
        return;
    }
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
void lg_build_conv_local(const lg_step *s, lg_plan *plan) { build(s, plan, LOCAL); }
void lg_build_conv_transpose_local(const lg_step *s, lg_plan *plan) { build(s, plan, LOCAL_TRANSPOSED); }
