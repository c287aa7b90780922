/* cumsum.c - running sums and products: the kernel of cumsum.inc. */
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
    if (lg_absent(s, 1) || s->inputs[1].data == NULL || !lg_lines_fit(s)) return false;
    if (s->inputs[1].dtype != LINNET_I32 && s->inputs[1].dtype != LINNET_I64) return false;
    const int64_t wanted =
        s->inputs[1].dtype == LINNET_I32 ? *(const int32_t *)s->inputs[1].data : *(const int64_t *)s->inputs[1].data;
    const int axis = lg_axis(wanted, x->rank);
    if (axis < 0 || axis >= x->rank) return false;
    z->length = x->shape[axis], z->inner = lg_shape_product(x, axis + 1, x->rank);
    z->lines = lg_count(x) / z->length;
    return true;
}

bool lg_can_cumsum(const lg_step *s) {
    sizes z;
    const int dtype = s->inputs[0].dtype;
    const bool wide = dtype == LINNET_I32 || dtype == LINNET_U32 || dtype == LINNET_I64 || dtype == LINNET_U64 ||
                      dtype == LINNET_F64 || lg_is_float(dtype);
    return lg_can_store(s) && wide && s->result.dtype == dtype && open(s, &z);
}

bool lg_can_cumsum_group(const lg_step *s) {
    sizes z;
    return lg_can_cumsum(s) && open(s, &z) && lg_lines_in_groups(s, "cumsum_group", z.lines, z.length);
}

static void build(const lg_step *s, lg_plan *plan, bool grouped) {
    sizes z;
    const int dtype = s->inputs[0].dtype;
    lg_launch *launch = lg_add(plan, "lg_cumsum");
    if (launch == NULL || !open(s, &z)) {
        plan->failed = true;
        return;
    }
    const bool floats = lg_is_float(dtype) || dtype == LINNET_F64;
    /* The CPU sums floats in f64. Integers wrap. */
    lg_put(&launch->source, "#define ACC %s\n", !floats ? "ln_u64" : s->machine->f64 ? "double" : "float");
    lg_define_operand(launch, "X", dtype);
    lg_define_operand(launch, "Y", dtype);
    lg_pass(launch, LG_INPUT, 0);
    lg_pass(launch, LG_OUTPUT, 0);
    lg_pass_integer(launch, z.lines);
    lg_pass_integer(launch, z.length);
    lg_pass_integer(launch, z.inner);
    lg_pass_integer(launch, lg_integer(s, "exclusive", 0) != 0);
    lg_pass_integer(launch, lg_integer(s, "reverse", 0) != 0);
    lg_pass_integer(launch, lg_integer(s, "product", 0) != 0);
    lg_range_lines(launch, s, z.lines, z.length, grouped);
    lg_put_file(launch, "cumsum");
}

void lg_build_cumsum(const lg_step *s, lg_plan *plan) { build(s, plan, false); }
void lg_build_cumsum_group(const lg_step *s, lg_plan *plan) { build(s, plan, true); }
