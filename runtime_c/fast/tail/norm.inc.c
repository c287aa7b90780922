/* norm.inc.c - layer, RMS, group, instance and batch normalization of contiguous data in f32. Compiled per ISA by
 * longtail__<isa>.c, without FMA, so that all levels give the same bits. norm_plan.c decides which calls it
 * supports. */
#include "fast/tail/norm_plan.h"
#include "fast/tail/any.inc.c"
#include "fast/tail/lane_sum.inc.c"

#include <math.h>

/* Returns the scale or bias of layer_norm (input i) as f32: in place, or widened into line i of scratch; NULL if
 * absent. */
static const float *norm_parameter(const ln_call *call, const ln_buffers *b, int i, float *scratch) {
    const ln_norm_plan *p = call->state;
    if (i >= call->n_inputs || call->inputs[i].dtype == LINNET_NONE) return NULL;
    if (call->inputs[i].dtype == LINNET_F32) return b->inputs[i];
    any_widen(call->inputs[i].dtype, b->inputs[i], 0, p->length, scratch + i * p->length);
    return scratch + i * p->length;
}

/* Computes y = x * factor + shift for n elements. */
static void norm_affine(const float *x, int64_t n, float factor, float shift, float *y) {
    vf f = vf_set1(factor), s = vf_set1(shift);
    int64_t i = 0;
    for (; i + VF_WIDTH <= n; i += VF_WIDTH) vf_store(y + i, vf_add(vf_mul(vf_load(x + i), f), s));
    if (i < n) vf_store_partial(y + i, (int)(n - i), vf_add(vf_mul(vf_load_partial(x + i, (int)(n - i)), f), s));
}

static void norm_line_statistics(const ln_norm_plan *p, const float *x, float *mean, float *inverse) {
    double n = (double)p->length;
    *mean = p->rms ? 0 : (float)(lane_sum(x, p->length, 0, false) / n);
    *inverse = (float)(1 / sqrt(lane_sum(x, p->length, *mean, true) / n + p->epsilon));
}

static inline const void *optional_input(const ln_call *call, const ln_buffers *b, int i) {
    return i < call->n_inputs && call->inputs[i].dtype != LINNET_NONE ? b->inputs[i] : NULL;
}

static linnet_status layer_norm_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                    int thread) {
    (void)phase;
    const ln_norm_plan *p = call->state;
    int dtype = call->inputs[0].dtype;
    float *scratch = (float *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    const float *scale = norm_parameter(call, b, 1, scratch);
    const float *bias = norm_parameter(call, b, 2, scratch);
    for (int64_t item = begin; item < end; item++) {
        int64_t at = item * p->length;
        const float *x = (const float *)b->inputs[0] + at;
        float *y = (float *)b->outputs[0] + at, mean, inverse;
        if (dtype != LINNET_F32) {
            any_widen(dtype, b->inputs[0], at, p->length, scratch);
            x = y = scratch;
        }
        norm_line_statistics(p, x, &mean, &inverse);
        vf m = vf_set1(mean), f = vf_set1(inverse);
        for (int64_t i = 0; i < p->length; i += VF_WIDTH) {
            int n = (int)ln_min(VF_WIDTH, p->length - i);
            vf v = vf_mul(vf_sub(any_load(true, LINNET_F32, x, i, n), m), f);
            if (scale != NULL) v = vf_mul(v, any_load(true, LINNET_F32, scale, i, n));
            if (bias != NULL) v = vf_add(v, any_load(true, LINNET_F32, bias, i, n));
            any_store(true, LINNET_F32, y, i, n, v);
        }
        if (dtype != LINNET_F32) any_narrow(dtype, scratch, p->length, b->outputs[0], at);
        if (call->n_outputs > 1 && call->outputs[1].dtype != LINNET_NONE) ((float *)b->outputs[1])[item] = mean;
        if (call->n_outputs > 2 && call->outputs[2].dtype != LINNET_NONE) ((float *)b->outputs[2])[item] = inverse;
    }
    return LINNET_OK;
}

static linnet_status group_norm_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                    int thread) {
    (void)phase;
    const ln_norm_plan *p = call->state;
    int dtype = call->inputs[0].dtype;
    const void *scale = optional_input(call, b, 1), *bias = optional_input(call, b, 2);
    float *scratch = (float *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    int64_t plane = p->length / p->channels;
    for (int64_t item = begin; item < end; item++) {
        int64_t at = item * p->length, first = item % p->groups * p->channels;
        const float *x = (const float *)b->inputs[0] + at;
        float *y = (float *)b->outputs[0] + at, mean, inverse;
        if (dtype != LINNET_F32) {
            any_widen(dtype, b->inputs[0], at, p->length, scratch);
            x = y = scratch;
        }
        norm_line_statistics(p, x, &mean, &inverse);
        for (int64_t c = 0; c < p->channels; c++) {
            double factor = (double)inverse, shift = 0;
            if (scale != NULL) factor *= ln_load_f64(scale, dtype, (first + c) * call->inputs[1].strides[0]);
            if (bias != NULL) shift = ln_load_f64(bias, dtype, (first + c) * call->inputs[2].strides[0]);
            norm_affine(x + c * plane, plane, (float)factor, (float)(shift - (double)mean * factor), y + c * plane);
        }
        if (dtype != LINNET_F32) any_narrow(dtype, scratch, p->length, b->outputs[0], at);
    }
    return LINNET_OK;
}

static linnet_status batch_norm_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                    int thread) {
    (void)thread;
    const ln_batch_norm_plan *p = call->state;
    float *factor = b->scratch, *shift = factor + p->channels;
    if (phase == 0) {
        ln_batch_norm_factors(call, b, factor, shift);
        return LINNET_OK;
    }
    for (int64_t row = begin; row < end; row++) {
        const float *x = (const float *)b->inputs[0] + row * p->columns;
        float *y = (float *)b->outputs[0] + row * p->columns;
        if (!p->channel_is_column) {
            norm_affine(x, p->columns, factor[row % p->channels], shift[row % p->channels], y);
            continue;
        }
        for (int64_t i = 0; i < p->columns; i += VF_WIDTH) {
            int n = (int)ln_min(VF_WIDTH, p->columns - i);
            vf v = vf_mul(vf_load_partial(x + i, n), vf_load_partial(factor + i, n));
            vf_store_partial(y + i, n, vf_add(v, vf_load_partial(shift + i, n)));
        }
    }
    return LINNET_OK;
}

const ln_kernel_code LN_SIMD_NAME(ln_layer_norm) = {
    .can = ln_layer_norm_can, .configure = ln_layer_norm_configure, .run = layer_norm_run};
const ln_kernel_code LN_SIMD_NAME(ln_group_norm) = {
    .can = ln_group_norm_can, .configure = ln_group_norm_configure, .run = group_norm_run};
const ln_kernel_code LN_SIMD_NAME(ln_batch_norm) = {
    .can = ln_batch_norm_can, .configure = ln_batch_norm_configure, .run = batch_norm_run};
