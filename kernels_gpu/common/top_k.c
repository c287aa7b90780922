/* top_k.c - the largest or smallest elements of lines: the kernel of top_k.inc. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/lines.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"

enum { MOST_KEPT = 64, LONGEST = 1 << 16 }; /* a work item reads a whole line */

static bool has_output(const lg_step *s, int i) { return i < s->n_outputs && s->outputs[i].dtype != LINNET_NONE; }

bool lg_can_top_k(const lg_step *s) {
    const linnet_device_tensor *x = &s->inputs[0];
    if (!lg_can_store(s) || lg_type_of(x->dtype) == NULL || !lg_lines_fit(s) || s->result.dtype != x->dtype)
        return false;
    if (x->dtype == LINNET_F64 && !s->machine->f64) return false;
    const int axis = lg_axis(lg_integer(s, "axis", -1), x->rank);
    return axis >= 0 && axis < x->rank && s->result.shape[axis] <= MOST_KEPT && x->shape[axis] <= LONGEST;
}

void lg_build_top_k(const lg_step *s, lg_plan *plan) {
    const linnet_device_tensor *x = &s->inputs[0];
    const int axis = lg_axis(lg_integer(s, "axis", -1), x->rank);
    const int64_t kept = s->result.shape[axis], length = x->shape[axis], lines = lg_count(x) / length;
    int room = 1; /* a power of two, so that several values of k share a program */
    while (room < kept) room *= 2;
    lg_launch *launch = lg_add(plan, "lg_top_k");
    if (launch == NULL) return;
    lg_define(launch, "ROOM", room);
    lg_define(launch, "INDICES", has_output(s, 1));
    lg_define_operand(launch, "X", x->dtype);
    lg_define_operand(launch, "Y", x->dtype);
    lg_pass(launch, LG_INPUT, 0);
    lg_pass(launch, LG_OUTPUT, 0);
    if (has_output(s, 1)) lg_pass(launch, LG_OUTPUT, 1);
    lg_pass_integer(launch, lines);
    lg_pass_integer(launch, length);
    lg_pass_integer(launch, lg_shape_product(x, axis + 1, x->rank));
    lg_pass_integer(launch, kept);
    lg_pass_integer(launch, lg_integer(s, "largest", 1) != 0);
    lg_range_items(launch, s, lines);
    lg_put_file(launch, "top_k");
}
