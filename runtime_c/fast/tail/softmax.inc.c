/* softmax.inc.c - softmax and log-softmax of contiguous lines in f32.
 * Compiled per ISA by longtail__<isa>.c. fast/tail/norm_plan.c decides which calls it supports. */
#include "fast/tail/norm_plan.h"
#include "fast/tail/any.inc.c"
#include "fast/tail/exp.inc.c"
#include "fast/tail/lane_sum.inc.c"
#include "simd/math.h"

static void softmax_line(const float *x, int64_t n, bool logarithm, float *y) {
    vf most = vf_set1(-INFINITY);
    double sum = 0.0;
    int64_t i = 0;
    for (; i + VF_WIDTH <= n; i += VF_WIDTH) most = vf_max(most, vf_load(x + i));
    if (i < n)
        most =
            vf_max(most, vf_select(vm_first((int)(n - i)), vf_load_partial(x + i, (int)(n - i)), vf_set1(-INFINITY)));
    vf top = vf_set1(vf_reduce_max(most));
    for (int64_t start = 0; start < n; start += LN_LANE_BLOCK) {
        int64_t end = ln_min(n, start + LN_LANE_BLOCK);
        vf lanes[LN_LANE_VECTORS];
        LN_SIMD_UNROLL
        for (int k = 0; k < LN_LANE_VECTORS; k++) lanes[k] = vf_zero();
        for (i = start; i < end; i += LN_LANES) {
            int left = (int)ln_min(end - i, LN_LANES);
            const float *from = x + i;
            float *to = y + i, tail[LN_LANES], results[LN_LANES];
            if (left < LN_LANES) {
                lane_tail(from, left, 0.0f, tail);
                from = tail, to = results;
            }
            LN_SIMD_UNROLL
            for (int k = 0; k < LN_LANE_VECTORS; k++) {
                vf e = exp_not_positive(vf_sub(vf_load(from + k * VF_WIDTH), top));
                if (left < LN_LANES) e = vf_select(vm_first(left - k * VF_WIDTH), e, vf_zero());
                if (!logarithm) vf_store(to + k * VF_WIDTH, e);
                lanes[k] = vf_add(lanes[k], e);
            }
            if (left < LN_LANES && !logarithm) memcpy(y + i, results, (size_t)left * sizeof *y);
        }
        sum += (double)lane_tree(lanes);
    }
    vf factor = vf_set1(logarithm ? 1.0f : 1.0f / (float)sum), less = vf_set1(logarithm ? ln_log_f((float)sum) : 0.0f);
    const float *from = logarithm ? x : y;
    vf shift = logarithm ? top : vf_zero();
    for (i = 0; i + VF_WIDTH <= n; i += VF_WIDTH)
        vf_store(y + i, vf_mul(vf_sub(vf_sub(vf_load(from + i), shift), less), factor));
    if (i < n) {
        vf v = vf_load_partial(from + i, (int)(n - i));
        vf_store_partial(y + i, (int)(n - i), vf_mul(vf_sub(vf_sub(v, shift), less), factor));
    }
}

/* Processes lines that lie beside each other in memory, one vector of lines at a time. Each line has 16 lanes, as in
 * softmax_line. */
static void softmax_columns(const ln_lines *p, const float *x, int64_t count, bool logarithm, float *y) {
    for (int64_t at = 0; at < count; at += VF_WIDTH, x += VF_WIDTH, y += VF_WIDTH) {
        const int n = (int)ln_min(VF_WIDTH, count - at);
        vf top = vf_set1(-INFINITY), lanes[LN_LANES], less = vf_zero(), factor = vf_set1(1.0f);
        for (int64_t i = 0; i < p->length; i++) top = vf_max(top, vf_load_partial(x + i * p->x_step, n));
        for (int i = 0; i < LN_LANES; i++) lanes[i] = vf_zero();
        for (int64_t i = 0; i < p->length; i++) {
            const vf e = exp_not_positive(vf_sub(vf_load_partial(x + i * p->x_step, n), top));
            if (!logarithm) vf_store_partial(y + i * p->y_step, n, e);
            lanes[i & (LN_LANES - 1)] = vf_add(lanes[i & (LN_LANES - 1)], e);
        }
        for (int half = LN_LANES / 2; half > 0; half /= 2)
            for (int i = 0; i < half; i++) lanes[i] = vf_add(lanes[i], lanes[i + half]);
        if (logarithm) {
            float sums[VF_WIDTH];
            vf_store(sums, lanes[0]);
            for (int i = 0; i < VF_WIDTH; i++) sums[i] = ln_log_f(sums[i]);
            less = vf_load(sums);
        } else {
            factor = vf_div(factor, lanes[0]), top = vf_zero();
        }
        const float *from = logarithm ? x : y;
        const int64_t step = logarithm ? p->x_step : p->y_step;
        for (int64_t i = 0; i < p->length; i++) {
            const vf v = vf_sub(vf_sub(vf_load_partial(from + i * step, n), top), less);
            vf_store_partial(y + i * p->y_step, n, vf_mul(v, factor));
        }
    }
}

static linnet_status softmax_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                 int thread) {
    (void)phase;
    const ln_lines *lines = call->state;
    int dtype = call->inputs[0].dtype;
    bool logarithm = ((const ln_softmax_attributes *)call->attributes)->log != 0;
    float *scratch = (float *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    const int64_t blocks = ln_max(1, ln_ceil_div(lines->across, LN_SOFTMAX_COLUMNS));
    for (int64_t item = begin; item < end; item++) {
        int64_t in, out;
        ln_line_offsets(lines, item / blocks, &in, &out);
        if (lines->across != 0) {
            const int64_t first = item % blocks * LN_SOFTMAX_COLUMNS;
            softmax_columns(lines, (const float *)b->inputs[0] + in + first,
                            ln_min(LN_SOFTMAX_COLUMNS, lines->across - first), logarithm,
                            (float *)b->outputs[0] + out + first);
        } else if (dtype == LINNET_F32) {
            softmax_line((const float *)b->inputs[0] + in, lines->length, logarithm, (float *)b->outputs[0] + out);
        } else {
            any_widen(dtype, b->inputs[0], in, lines->length, scratch);
            softmax_line(scratch, lines->length, logarithm, scratch);
            any_narrow(dtype, scratch, lines->length, b->outputs[0], out);
        }
    }
    return LINNET_OK;
}

const ln_kernel_code LN_SIMD_NAME(ln_softmax) = {
    .can = ln_softmax_can, .configure = ln_softmax_configure, .run = softmax_run};
