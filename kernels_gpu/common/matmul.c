/* matmul.c - matrix products: the kernels of matmul.inc, matmul_weights.inc and matmul_local.inc. */
#include "kernels_gpu/common/matmul.h"
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/product.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"

#include <stdlib.h>
#include <string.h>

enum { LOCAL_TILE = 64, LOCAL_DEPTH = 16, LOCAL_ITEMS = 256 }; /* the sizes in matmul_local.inc */

typedef lg_matmul sizes;

bool lg_matmul_open(const lg_step *s, sizes *out) {
    const linnet_device_tensor *a = &s->inputs[0], *b = &s->inputs[1];
    if (a->rank < 1 || b->rank < 1) return false;
    const bool ta = lg_integer(s, "transpose_a", 0) != 0 && a->rank > 1;
    const bool tb = lg_integer(s, "transpose_b", 0) != 0 && b->rank > 1;
    const int64_t a_last = a->shape[a->rank - 1], b_last = b->shape[b->rank - 1];
    const int64_t a_first = a->rank > 1 ? a->shape[a->rank - 2] : 1;
    *out = (sizes){.m = ta ? a_last : a_first, .depth = ta ? a_first : a_last};
    out->a_m = a->rank > 1 ? (ta ? 1 : a_last) : 0, out->a_k = ta ? a_last : 1;
    out->n = b->rank == 1 ? 1 : tb ? b->shape[b->rank - 2] : b_last;
    out->b_k = b->rank == 1 || tb ? 1 : b_last, out->b_n = b->rank == 1 ? 0 : tb ? b_last : 1;
    out->a_outer = a->rank > 2 ? a->rank - 2 : 0, out->b_outer = b->rank > 2 ? b->rank - 2 : 0;
    const int64_t results = out->m * out->n;
    if (results == 0 || lg_count(&s->result) == 0) return false;
    out->matrices = lg_count(&s->result) / results;
    if (out->b_outer == 0 && !ta && a->rank > 1) { /* all matrices of a are treated as rows of one matrix */
        out->m *= out->matrices;
        out->matrices = 1;
        out->a_outer = 0;
    }
    return true;
}

bool lg_can_matmul(const lg_step *s) {
    sizes z;
    return lg_can_multiply(s) && lg_matmul_open(s, &z);
}

bool lg_can_matmul_dot(const lg_step *s) {
    sizes z;
    return lg_can_matmul(s) && lg_matmul_open(s, &z) && z.a_k == 1 && z.b_k == 1 && z.depth >= 4;
}

/* Tells whether the kernel of matmul_local.inc should run a large product of floats. On a processor, it runs only if
 * the option `kernel` names it, because a processor's local memory is no faster than its other memory. */
static bool can_local(const lg_step *s, const char *name) {
    sizes z;
    const lg_machine *m = s->machine;
    if (!lg_is_float(s->inputs[0].dtype) || !lg_matmul_open(s, &z)) return false;
    if (m->most_items < LOCAL_ITEMS || m->local_bytes < 2 * LOCAL_DEPTH * LOCAL_TILE * sizeof(float)) return false;
    return strcmp(m->prefer, name) == 0 || (!m->is_cpu && z.m >= LOCAL_TILE && z.n >= LOCAL_TILE);
}

bool lg_can_matmul_local(const lg_step *s) { return lg_can_matmul(s) && can_local(s, "matmul_local"); }

/* ---- quantized weights ------------------------------------------------------------------------------------------- */

static bool is_narrow(int dtype) {
    return dtype == LINNET_I8 || dtype == LINNET_U8 || dtype == LINNET_I4 || dtype == LINNET_U4;
}

bool lg_can_matmul_weights(const lg_step *s) {
    const linnet_device_tensor *x = &s->inputs[0], *w = &s->inputs[1];
    sizes z;
    if (s->n_inputs < 2 || !lg_can_store(s) || lg_count(x) > INT32_MAX || lg_count(w) > INT32_MAX) return false;
    return lg_is_float(x->dtype) && s->result.dtype == x->dtype && is_narrow(w->dtype) && w->scales != NULL &&
           (w->quant_scheme == LINNET_QUANT_TENSOR || w->rank <= 2) &&
           (lg_absent(s, 2) || s->inputs[2].dtype == x->dtype) && lg_matmul_open(s, &z);
}

bool lg_can_matmul_weights_dot(const lg_step *s) {
    sizes z;
    return lg_can_matmul_weights(s) && lg_matmul_open(s, &z) && z.a_k == 1 && z.b_k == 1 && z.depth >= 4;
}

bool lg_can_matmul_weights_local(const lg_step *s) {
    return lg_can_matmul_weights(s) && s->inputs[1].rank <= 2 && can_local(s, "matmul_weights_local");
}

/* Packs the scales and zero points of b and defines LG_RUN, SCALE and ZERO(run, column): the index of the scale
 * and the zero point of element (k, n) is k / run * along + n / columns * across. */
static void put_scales(lg_plan *plan, lg_launch *launch, const lg_step *s, const sizes *z) {
    const linnet_device_tensor *w = &s->inputs[1];
    const bool block = w->quant_scheme == LINNET_QUANT_BLOCK, single = w->quant_count == 1;
    const int axis = lg_axis(w->quant_axis, w->rank), last = w->rank - 1;
    const int sum_axis = w->rank == 1 || lg_integer(s, "transpose_b", 0) != 0 ? last : last - 1;
    const int64_t size = single ? 1 : w->shape[axis], blocks = block ? (size + w->quant_block - 1) / w->quant_block : 1;
    int64_t run = z->depth, columns = 1, along = 0, across = 0;
    if (!single && !block) {
        if (axis == sum_axis)
            run = 1, along = 1;
        else
            across = 1;
    } else if (!single) { /* the scales have the shape of b, with blocks along the axis */
        const int64_t inner = w->rank == 1 ? 1 : last == axis ? blocks : w->shape[last];
        along = sum_axis == last ? 1 : inner, across = sum_axis == last ? inner : 1;
        run = axis == sum_axis ? w->quant_block : 1;
        columns = axis == sum_axis ? 1 : w->quant_block;
    }
    bool zeros = false;
    int32_t *zero = calloc(w->quant_count, sizeof *zero);
    if (zero == NULL) {
        plan->failed = true;
        return;
    }
    for (int64_t i = 0; i < w->quant_count && w->zeros != NULL; ++i) zeros |= (zero[i] = w->zeros[i]) != 0;
    lg_text *text = &launch->source;
    lg_put(text, "#define LG_RUN lg_n%d\n", lg_number(launch, run > 0 ? run : 1));
    lg_put(text, "#define LG_ENTRY(run,column) ((run)*lg_n%d", lg_number(launch, along));
    lg_put(text, "+(column)/lg_n%d", lg_number(launch, columns));
    lg_put(text, "*lg_n%d)\n", lg_number(launch, across));
    lg_put(text, "#define SCALE(run,column) ((LG_GLOBAL const float *)(lg_packed+lg_n%d))[LG_ENTRY(run,column)]\n",
           lg_number(launch, (int64_t)lg_pack(plan, w->scales, (size_t)w->quant_count * sizeof *w->scales)));
    if (zeros)
        lg_put(text, "#define ZERO(run,column) ((LG_GLOBAL const int *)(lg_packed+lg_n%d))[LG_ENTRY(run,column)]\n",
               lg_number(launch, (int64_t)lg_pack(plan, zero, (size_t)w->quant_count * sizeof *zero)));
    else
        lg_put(text, "#define ZERO(run,column) 0\n");
    free(zero);
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

typedef enum method { GENERAL, DOT, LOCAL } method;

static void build(const lg_step *s, lg_plan *plan, const char *kernel, method how, bool weights) {
    const bool dot = how == DOT;
    sizes z;
    lg_launch *launch = lg_add(plan, kernel);
    if (launch == NULL || !lg_matmul_open(s, &z)) {
        plan->failed = true;
        return;
    }
    const int rows = z.m >= 8 && !dot ? 8 : z.m >= 4 ? 4 : z.m >= 2 ? 2 : 1;
    const int a_rank = s->inputs[0].rank, b_rank = s->inputs[1].rank;
    const int y_outer = z.matrices == 1 ? 0 : s->result.rank - (a_rank > 1) - (b_rank > 1);
    const bool bias = !lg_absent(s, 2);
    lg_put(&launch->source, "#define BIAS_AT(i) %s\n", bias && lg_count(&s->inputs[2]) == 1 ? "0" : "(i)");
    lg_define(launch, "ROWS", rows);
    lg_define(launch, "DOT", dot);
    lg_define(launch, "WEIGHTS", weights);
    lg_pass(launch, LG_INPUT, 0);
    lg_pass(launch, LG_INPUT, 1);
    lg_pass(launch, LG_INPUT, bias ? 2 : 1);
    lg_pass(launch, LG_OUTPUT, 0);
    const int64_t numbers[] = {z.m, z.n, z.depth, z.a_m, z.a_k, z.b_k, z.b_n};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) lg_pass_integer(launch, numbers[i]);
    lg_put_batch(launch, "BATCH_A", &s->inputs[0], z.a_outer, &s->result, y_outer);
    lg_put_batch(launch, "BATCH_B", &s->inputs[1], z.b_outer, &s->result, y_outer);
    if (weights) put_scales(plan, launch, s, &z);
    lg_define_product(plan, launch, s);
    lg_put_store(plan, launch, s);
    lg_put_file(launch, how == LOCAL ? "matmul_local" : weights ? "matmul_weights" : "matmul");
    if (how == LOCAL) {
        const int64_t columns = (z.n + LOCAL_TILE - 1) / LOCAL_TILE, tiles = (z.m + LOCAL_TILE - 1) / LOCAL_TILE;
        lg_range(launch, columns * LOCAL_ITEMS, tiles, z.matrices);
        lg_local(launch, LOCAL_ITEMS, 1, 1);
        return;
    }
    lg_range(launch, dot ? z.n : (z.n + 3) / 4, (z.m + rows - 1) / rows, z.matrices);
    lg_local(launch, 16, 4, 1);
}

void lg_build_matmul(const lg_step *s, lg_plan *plan) { build(s, plan, "lg_matmul", GENERAL, false); }
void lg_build_matmul_dot(const lg_step *s, lg_plan *plan) { build(s, plan, "lg_matmul_dot", DOT, false); }
void lg_build_matmul_local(const lg_step *s, lg_plan *plan) { build(s, plan, "lg_matmul_local", LOCAL, false); }
void lg_build_matmul_weights(const lg_step *s, lg_plan *plan) { build(s, plan, "lg_matmul_weights", GENERAL, true); }
void lg_build_matmul_weights_dot(const lg_step *s, lg_plan *plan) {
    build(s, plan, "lg_matmul_weights_dot", DOT, true);
}
void lg_build_matmul_weights_local(const lg_step *s, lg_plan *plan) { build(s, plan, "lg_matmul_local", LOCAL, true); }
