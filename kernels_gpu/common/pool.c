/* pool.c - launches the kernels of pool.inc (max, average and Lp pooling) and of pool_gradient.inc (gradients of max
   and average pooling). */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"
#include "kernels_gpu/common/window.h"

enum { MAX, AVERAGE, LP };  /* values of the attribute kind, docs/ops.md */
enum { MOST_TAPS = 32768 }; /* with so few taps, sums of integers fit in 31 bits */

typedef struct pool {
    lg_window w;
    int64_t end[LG_SPACE]; /* padding at the end of each axis */
    int64_t taps;
} pool;

/* Reads the windows of a pool or of its gradient. y is the pooled tensor, or the gradient of it. */
static bool open(const lg_step *s, const linnet_device_tensor *y, pool *p) {
    const linnet_device_tensor *x = &s->inputs[0];
    int64_t kernel[LG_SPACE];
    const int space = x->rank - 2;
    if (space < 1 || space > LG_SPACE || lg_items(s, "kernel") != space) return false;
    for (int i = 0; i < space; ++i) kernel[i] = lg_item(s, "kernel", i, 1);
    if (!lg_window_open(&p->w, s, x, y, kernel, false)) return false;
    const int64_t padding = lg_integer(s, "auto_pad", 0);
    p->taps = 1;
    for (int d = 0; d < LG_SPACE; ++d) {
        const lg_window *w = &p->w;
        const int i = d - (LG_SPACE - space);
        const int64_t reach = (w->kernel[d] - 1) * w->dilation[d] + 1;
        const int64_t all = (w->out[d] - 1) * w->stride[d] + reach - w->in[d];
        p->end[d] = i < 0 || padding == 3 ? 0
                    : padding == 0        ? lg_item(s, "pads", space + i, 0)
                    : all > 0             ? all - w->pad[d]
                                          : 0;
        p->taps *= w->kernel[d];
        if (p->taps > INT32_MAX || w->in[d] + w->pad[d] + p->end[d] + reach > INT32_MAX || w->stride[d] > INT32_MAX)
            return false;
    }
    return true;
}

bool lg_can_pool(const lg_step *s) {
    pool p;
    const linnet_device_tensor *x = &s->inputs[0], *y = &s->result;
    const bool small = x->dtype == LINNET_I8 || x->dtype == LINNET_U8 || x->dtype == LINNET_I16;
    if (!lg_can_store(s) || x->dtype != y->dtype || !(small || lg_is_float(x->dtype)) || !open(s, y, &p)) return false;
    if (lg_count(x) == 0 || lg_count(y) == 0 || (small && p.taps > MOST_TAPS)) return false;
    return lg_integer(s, "p", 2) <= INT32_MAX;
}

void lg_build_pool(const lg_step *s, lg_plan *plan) {
    pool p;
    const linnet_device_tensor *x = &s->inputs[0];
    const bool indices = lg_wanted(s, 1), floats = lg_is_float(x->dtype);
    lg_launch *launch = lg_add(plan, "lg_pool");
    if (launch == NULL || !open(s, &s->result, &p)) {
        plan->failed = true;
        return;
    }
    const int64_t kind = lg_integer(s, "kind", MAX);
    const int least = x->dtype == LINNET_I8 ? -128 : x->dtype == LINNET_U8 ? 0 : -32768;
    lg_define(launch, "LARGEST", kind == MAX);
    lg_define(launch, "POWERS", kind == LP);
    lg_define(launch, "FLOATS", floats);
    lg_define_operand(launch, "X", x->dtype);
    lg_define_operand(launch, "Y", s->outputs[0].dtype);
    lg_pass(launch, LG_INPUT, 0);
    lg_pass(launch, LG_OUTPUT, 0);
    lg_pass(launch, LG_OUTPUT, indices ? 1 : 0);
    lg_pass_integer(launch, lg_count(&s->result));
    lg_pass_integer(launch, p.w.channels);
    lg_pass_integer(launch, p.w.y_last);
    lg_pass_integer(launch, p.w.x_c);
    lg_pass_integer(launch, p.w.x_x);
    lg_pass_space(launch, p.w.in);
    lg_pass_space(launch, p.w.out);
    lg_pass_space(launch, p.w.kernel);
    lg_pass_space(launch, p.w.stride);
    lg_pass_space(launch, p.w.dilation);
    lg_pass_space(launch, p.w.pad);
    lg_pass_space(launch, p.end);
    lg_pass_integer(launch, indices);
    lg_pass_integer(launch, lg_integer(s, "count_include_pad", 0) != 0);
    lg_pass_integer(launch, lg_integer(s, "p", 2));
    lg_pass_integer(launch, lg_integer(s, "storage_order", 0) != 0);
    lg_pass_integer(launch, floats ? 0 : least);
    lg_pass_integer(launch, !floats && x->zeros != NULL ? x->zeros[0] : 0); /* padding has the real value 0 */
    lg_put_file(launch, "pool");
    lg_range(launch, lg_count(&s->result), 1, 1);
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

bool lg_can_pool_gradient(const lg_step *s) {
    pool p;
    const linnet_device_tensor *x = &s->inputs[0], *g = &s->inputs[1];
    if (s->n_inputs != 2 || !lg_is_float(x->dtype) || g->dtype != x->dtype || s->result.dtype != x->dtype) return false;
    return lg_can_store(s) && open(s, g, &p) && lg_count(x) > 0 && lg_count(g) > 0;
}

static void pass_window(lg_launch *launch, const lg_step *s, const pool *p, int64_t count) {
    lg_pass_integer(launch, count);
    lg_pass_integer(launch, p->w.last ? p->w.channels : 1);
    lg_pass_space(launch, p->w.in);
    lg_pass_space(launch, p->w.out);
    lg_pass_space(launch, p->w.kernel);
    lg_pass_space(launch, p->w.stride);
    lg_pass_space(launch, p->w.dilation);
    lg_pass_space(launch, p->w.pad);
    lg_pass_space(launch, p->end);
    lg_pass_integer(launch, lg_integer(s, "count_include_pad", 0) != 0);
    lg_put_file(launch, "pool_gradient");
    lg_range(launch, count, 1, 1);
}

/* Returns the stride of all dimensions that have windows, if it is small; else 0. */
static int stride_of(const lg_window *w, bool flat) {
    const int64_t stride = w->stride[2];
    if (stride != w->stride[1] || (!flat && stride != w->stride[0])) return 0;
    return stride <= 4 ? (int)stride : 0;
}

static lg_launch *add_gradient(const lg_step *s, lg_plan *plan, const lg_window *w, const char *kernel, bool largest) {
    const bool flat = w->in[0] == 1 && w->out[0] == 1 && w->kernel[0] == 1 && w->pad[0] == 0;
    lg_launch *launch = lg_add(plan, kernel);
    if (launch == NULL) return NULL;
    lg_define(launch, "LARGEST", largest);
    lg_define(launch, "FLAT", flat);
    lg_define(launch, "DILATED", w->dilation[0] > 1 || w->dilation[1] > 1 || w->dilation[2] > 1);
    lg_define(launch, "STRIDE", stride_of(w, flat));
    lg_define_operand(launch, "X", s->inputs[0].dtype);
    return launch;
}

void lg_build_pool_gradient(const lg_step *s, lg_plan *plan) {
    pool p;
    const bool largest = lg_integer(s, "kind", MAX) == MAX;
    if (!open(s, &s->inputs[1], &p)) {
        plan->failed = true;
        return;
    }
    const int64_t windows = lg_count(&s->inputs[1]);
    lg_launch *launch = largest ? add_gradient(s, plan, &p.w, "lg_pool_places", true) : NULL;
    if (launch != NULL) {
        plan->scratch_bytes = (uint64_t)windows * sizeof(int32_t);
        lg_pass(launch, LG_INPUT, 0);
        lg_pass(launch, LG_SCRATCH, 0);
        pass_window(launch, s, &p, windows);
    }
    launch = add_gradient(s, plan, &p.w, "lg_pool_gradient", largest);
    if (launch == NULL) return;
    lg_pass(launch, LG_INPUT, 1);
    /* For averages, the kernel does not read the places. */
    lg_pass(launch, largest ? LG_SCRATCH : LG_INPUT, largest ? 0 : 1);
    lg_pass(launch, LG_OUTPUT, 0);
    pass_window(launch, s, &p, lg_count(&s->result));
    plan->failed |= launch->source.failed;
}
