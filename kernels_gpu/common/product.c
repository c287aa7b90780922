/* product.c - the dtypes of products and sums, and the conversion of integer sums (kernels_gpu/common/product.h). */
#include "kernels_gpu/common/product.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"

#include <stdlib.h>

/* Tells whether the host knows how the sums of this step are converted. */
static bool has_requant(const lg_step *s, linnet_requant *out) {
    const linnet_host *host = s->machine->host;
    linnet_requant_init(out);
    return host->struct_size >= sizeof *host && host->step_get_requant(s->step, out) == LINNET_OK;
}

bool lg_can_multiply(const lg_step *s) {
    const linnet_device_tensor *x = &s->inputs[0], *w = &s->inputs[1], *y = &s->result;
    linnet_requant requant;
    if (s->n_inputs < 2 || !lg_can_store(s) || lg_count(x) > INT32_MAX || lg_count(w) > INT32_MAX) return false;
    if (lg_is_quantizable(x->dtype)) return lg_converts_sums(s) && has_requant(s, &requant);
    /* Under an epilogue, the result of f16 or bf16 operands is the f32 sum. */
    return lg_is_float(x->dtype) && w->dtype == x->dtype &&
           (y->dtype == x->dtype || (s->has_epilogue && y->dtype == LINNET_F32)) &&
           (lg_absent(s, 2) || s->inputs[2].dtype == x->dtype);
}

/* Packs the tables of a conversion and defines their names. */
static void put_tables(lg_plan *plan, lg_launch *launch, const lg_step *s) {
    linnet_requant r;
    if (!has_requant(s, &r) || r.channels < 1) {
        plan->failed = true;
        return;
    }
    const size_t n = (size_t)r.channels;
    int32_t *numbers = calloc(4 * n, sizeof *numbers);
    float *scales = calloc(n, sizeof *scales);
    if (numbers != NULL && scales != NULL) {
        r.capacity = r.channels;
        r.scale = scales, r.fixed = numbers, r.shift = numbers + n, r.w_zero = numbers + 2 * n;
        plan->failed |= s->machine->host->step_get_requant(s->step, &r) != LINNET_OK;
        bool zeros = false;
        for (size_t i = 0; i < n; ++i) zeros = zeros || r.w_zero[i] != 0;
        lg_put(&launch->source, "#define X_ZERO lg_n%d\n", lg_number(launch, r.x_zero));
        if (zeros)
            lg_put(&launch->source, "#define W_ZERO(channel) ((LG_GLOBAL const int *)(lg_packed+lg_n%d))[channel]\n",
                   lg_number(launch, (int64_t)lg_pack(plan, r.w_zero, n * sizeof *r.w_zero)));
        else
            lg_put(&launch->source, "#define W_ZERO(channel) 0\n");
        lg_define(launch, "WIDE", r.wide);
        lg_put(&launch->source, "#define LG_TABLES ");
        if (lg_is_quantizable(s->result.dtype) && r.table != LINNET_REQUANT_NONE)
            lg_put(&launch->source, "const int result_zero=lg_n%d;", lg_number(launch, r.y_zero));
        if (r.table == LINNET_REQUANT_SCALE)
            lg_put(&launch->source,
                   "LG_GLOBAL const float *const result_scale="
                   "(LG_GLOBAL const float *)(lg_packed+lg_n%d);\n",
                   lg_number(launch, (int64_t)lg_pack(plan, scales, n * sizeof *scales)));
        else if (r.table == LINNET_REQUANT_FIXED)
            lg_put(&launch->source,
                   "LG_GLOBAL const int *const result_fixed=(LG_GLOBAL const int *)(lg_packed+lg_n%d);"
                   "LG_GLOBAL const int *const result_shift=(LG_GLOBAL const int *)(lg_packed+lg_n%d);\n",
                   lg_number(launch, (int64_t)lg_pack(plan, r.fixed, n * sizeof *r.fixed)),
                   lg_number(launch, (int64_t)lg_pack(plan, r.shift, n * sizeof *r.shift)));
        else
            lg_put(&launch->source, "\n");
    } else {
        plan->failed = true;
    }
    free(numbers);
    free(scales);
}

void lg_define_product(lg_plan *plan, lg_launch *launch, const lg_step *s) {
    const bool bias = !lg_absent(s, 2), floats = lg_is_float(s->inputs[0].dtype);
    lg_define_operand(launch, "X", s->inputs[0].dtype);
    lg_define_operand(launch, "W", s->inputs[1].dtype);
    lg_define_operand(launch, "B", s->inputs[bias ? 2 : 1].dtype);
    lg_define_operand(launch, "Y", s->outputs[0].dtype);
    lg_define(launch, "BIAS", bias);
    lg_define(launch, "FLOATS", floats);
    if (floats)
        lg_define(launch, "X_ZERO", 0);
    else
        put_tables(plan, launch, s);
    lg_put_file(launch, "product");
}

void lg_put_batch(lg_launch *launch, const char *name, const linnet_device_tensor *t, int outer,
                  const linnet_device_tensor *y, int y_outer) {
    lg_text *text = &launch->source;
    lg_put(text, "#define %s(i) (0", name);
    const int64_t matrix = outer > 0 ? lg_shape_product(t, outer, t->rank) : 0;
    int64_t inner = 1;
    bool whole = outer == y_outer;
    for (int d = 0; d < outer && whole; ++d) whole = t->shape[d] == y->shape[d];
    if (whole && outer > 0) lg_put(text, "+(i)*lg_n%d", lg_number(launch, matrix));
    for (int d = y_outer - 1; d >= 0 && !whole; --d) {
        const int own = d - (y_outer - outer);
        if (own >= 0 && t->shape[own] != 1) {
            lg_put(text, "+(i)/lg_n%d", lg_number(launch, inner));
            lg_put(text, "%%lg_n%d", lg_number(launch, y->shape[d]));
            lg_put(text, "*lg_n%d", lg_number(launch, matrix * lg_shape_product(t, own + 1, outer)));
        }
        inner *= y->shape[d];
    }
    lg_put(text, ")\n");
}
