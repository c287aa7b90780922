/* softmax.c - softmax and its logarithm along an axis: the kernels of softmax.inc. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/lines.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"

typedef struct sizes {
    int64_t lines, length, inner; /* inner: distance between neighbours of a line, in elements */
} sizes;

static bool open(const lg_step *s, sizes *z) {
    const linnet_device_tensor *x = &s->inputs[0];
    const int axis = lg_axis(lg_integer(s, "axis", -1), x->rank);
    if (axis < 0 || axis >= x->rank || !lg_lines_fit(s)) return false;
    z->length = x->shape[axis], z->inner = lg_shape_product(x, axis + 1, x->rank);
    z->lines = lg_count(x) / z->length;
    return true;
}

bool lg_can_softmax(const lg_step *s) {
    sizes z;
    const int dtype = s->inputs[0].dtype;
    return lg_can_store(s) && (lg_is_float(dtype) || dtype == LINNET_F64) && s->result.dtype == dtype && open(s, &z);
}

bool lg_can_softmax_group(const lg_step *s) {
    sizes z;
    return lg_can_softmax(s) && open(s, &z) && lg_lines_in_groups(s, "softmax_group", z.lines, z.length);
}

static void build(const lg_step *s, lg_plan *plan, bool grouped) {
    sizes z;
    lg_launch *launch = lg_add(plan, "lg_softmax");
    if (launch == NULL || !open(s, &z)) {
        plan->failed = true;
        return;
    }
    lg_define(launch, "WIDE", s->inputs[0].dtype == LINNET_F64);
    lg_define_operand(launch, "X", s->inputs[0].dtype);
    lg_define_operand(launch, "Y", s->outputs[0].dtype);
    lg_pass(launch, LG_INPUT, 0);
    lg_pass(launch, LG_OUTPUT, 0);
    lg_pass_integer(launch, z.lines);
    lg_pass_integer(launch, z.length);
    lg_pass_integer(launch, z.inner);
    lg_pass_integer(launch, lg_integer(s, "log", 0) != 0);
    lg_range_lines(launch, s, z.lines, z.length, grouped);
    lg_put_file(launch, "lines");
    lg_put_file(launch, "softmax");
}

void lg_build_softmax(const lg_step *s, lg_plan *plan) { build(s, plan, false); }
void lg_build_softmax_group(const lg_step *s, lg_plan *plan) { build(s, plan, true); }
