/* moments.c - launches the kernels of moments.inc: mean and variance per channel, and the sums for the gradient of
 * batch_norm. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"

enum { STATISTICS, PRODUCTS };
enum { GROUP = 64, FEW_ITEMS = 64, MANY_ITEMS = 1 << 15, LEAST = 64 /* elements of an item */, MOST_PARTS = 1024 };

typedef struct sizes {
    int64_t channels, inner, length; /* inner: adjacent elements of one channel; length: all elements of one channel */
} sizes;

static bool open(const lg_step *s, sizes *z) {
    const linnet_device_tensor *x = &s->inputs[0];
    const int axis = lg_axis(lg_integer(s, "channel_axis", 1), x->rank);
    if (axis < 0 || axis >= x->rank || lg_count(x) == 0 || lg_count(x) > INT32_MAX) return false;
    z->channels = x->shape[axis], z->inner = lg_shape_product(x, axis + 1, x->rank);
    z->length = lg_count(x) / z->channels;
    return true;
}

bool lg_can_moments(const lg_step *s) {
    sizes z;
    const int dtype = s->inputs[0].dtype;
    const int needed = lg_integer(s, "kind", STATISTICS) == PRODUCTS ? 3 : 1;
    if (!lg_is_float(dtype) || !lg_can_store(s) || s->n_inputs < needed || !open(s, &z)) return false;
    for (int i = 1; i < needed; ++i)
        if (lg_absent(s, i) || s->inputs[i].dtype != dtype) return false;
    return true;
}

static bool wanted(const lg_step *s, int output) {
    return output < s->n_outputs && s->outputs[output].dtype != LINNET_NONE;
}

void lg_build_moments(const lg_step *s, lg_plan *plan) {
    sizes z;
    lg_launch *launch = lg_add(plan, "lg_moments");
    if (launch == NULL || !open(s, &z)) {
        plan->failed = true;
        return;
    }
    const bool products = lg_integer(s, "kind", STATISTICS) == PRODUCTS, is_cpu = s->machine->is_cpu;
    const int64_t group = is_cpu || z.inner < GROUP / 2 ? 1 : GROUP;
    int64_t parts = ((is_cpu ? FEW_ITEMS : MANY_ITEMS) / group + z.channels - 1) / z.channels;
    if (parts > z.length / (LEAST * group)) parts = z.length / (LEAST * group);
    if (parts > MOST_PARTS) parts = MOST_PARTS;
    const int64_t per_part = parts > 1 ? (z.length + parts - 1) / parts : z.length;
    parts = (z.length + per_part - 1) / per_part;
    plan->scratch_bytes = (uint64_t)(3 * parts * z.channels) * sizeof(float);
    lg_define(launch, "PRODUCTS", products);
    lg_define(launch, "GROUP", group);
    lg_define_operand(launch, "X", s->inputs[0].dtype);
    for (int i = 0; i < 3; ++i) lg_pass(launch, LG_INPUT, products ? i : 0);
    lg_pass(launch, LG_SCRATCH, 0);
    const int64_t numbers[] = {z.channels, z.inner, z.length, parts, per_part};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) lg_pass_integer(launch, numbers[i]);
    lg_put_file(launch, "lines");
    lg_put_file(launch, "moments");
    if (group > 1)
        lg_range(launch, z.channels * group, parts, 1), lg_local(launch, (size_t)group, 1, 1);
    else
        lg_range(launch, z.channels * parts, 1, 1), lg_local(launch, is_cpu ? 4 : 64, 1, 1);
    plan->failed |= launch->source.failed;
    launch = lg_add(plan, "lg_moments_finish");
    if (launch == NULL) return;
    lg_define(launch, "PRODUCTS", products);
    lg_define(launch, "GROUP", group);
    lg_define_operand(launch, "X", s->inputs[0].dtype);
    lg_pass(launch, LG_SCRATCH, 0);
    for (int i = 0; i < 2; ++i) lg_pass(launch, LG_OUTPUT, wanted(s, i) ? i : 1 - i);
    const int64_t rest[] = {z.channels, z.length, parts, per_part, (wanted(s, 0) ? 1 : 0) | (wanted(s, 1) ? 2 : 0)};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; ++i) lg_pass_integer(launch, rest[i]);
    lg_put_file(launch, "lines"); /* both launches have the same text, so they share a program */
    lg_put_file(launch, "moments");
    lg_range(launch, z.channels, 1, 1);
    plan->failed |= launch->source.failed;
}
