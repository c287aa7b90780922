/* product.c - the dtypes of products and sums (kernels_gpu/common/product.h). */
#include "kernels_gpu/common/product.h"

bool lg_can_multiply(const lg_step *s) {
    const linnet_device_tensor *x = &s->inputs[0], *w = &s->inputs[1], *y = &s->result;
    if (s->n_inputs < 2 || !lg_can_store(s) || lg_count(x) > INT32_MAX || lg_count(w) > INT32_MAX) return false;
    return lg_is_float(x->dtype) && w->dtype == x->dtype && y->dtype == x->dtype &&
           (lg_absent(s, 2) || s->inputs[2].dtype == x->dtype);
}

void lg_define_product(lg_plan *plan, lg_launch *launch, const lg_step *s) {
    (void)plan;
    const bool bias = !lg_absent(s, 2);
    lg_define_operand(launch, "X", s->inputs[0].dtype);
    lg_define_operand(launch, "W", s->inputs[1].dtype);
    lg_define_operand(launch, "B", s->inputs[bias ? 2 : 1].dtype);
    lg_define_operand(launch, "Y", s->outputs[0].dtype);
    lg_define(launch, "BIAS", bias);
    lg_define(launch, "FLOATS", 1);
    lg_put_text(&launch->source, "#define ACC float\n#define ACC4 LG_FLOAT4\n#define MAKE_ACC4 LG_MAKE_FLOAT4\n"
                                 "#define MULTIPLY_ADD(w,zero,v,sum) LG_FMA((LG_FLOAT4)(w),v,sum)\n#define X_ZERO 0\n");
}
