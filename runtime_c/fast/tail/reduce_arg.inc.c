/* reduce_arg.inc.c - argmax and argmin of f32 along one axis, in any layout. They are scalar, and only the lowest ISA
 * level compiles them. */
#include "kernel/cost.h"
#include "kernel/op.h"

#if defined(LN_SIMD_SSE2) || defined(LN_SIMD_NEON)

static LN_PLANNING bool LN_SIMD_NAME(arg_can)(const ln_call *call) {
    const ln_reduce_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0];
    uint32_t mask;
    bool bad;
    return ln_count(x) > 0 && (a->kind == LN_REDUCE_KIND_ARGMAX || a->kind == LN_REDUCE_KIND_ARGMIN) &&
           ln_reduce_mask(a, call->inputs, call->n_inputs, &mask, &bad) && mask != 0 && (mask & (mask - 1)) == 0;
}

static LN_PLANNING linnet_status LN_SIMD_NAME(arg_configure)(ln_call *call) {
    call->work[0] = ln_count(&call->outputs[0]);
    call->grain = ln_max(1, 16384 * call->work[0] / ln_count(&call->inputs[0]));
    return LINNET_OK;
}

static linnet_status LN_SIMD_NAME(arg_run)(const ln_call *call, const ln_buffers *b, int phase, int64_t begin,
                                           int64_t end, int thread) {
    (void)phase;
    (void)thread;
    const ln_reduce_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    ln_tensor kept = *x;
    uint32_t mask;
    bool bad, largest = a->kind == LN_REDUCE_KIND_ARGMAX, last = a->select_last_index != 0;
    int axis = 0;
    ln_reduce_mask(a, call->inputs, call->n_inputs, &mask, &bad);
    while (!(mask >> axis & 1u)) axis++;
    kept.dims[axis] = 1;
    for (int64_t i = begin; i < end; i++) {
        const float *p = (const float *)b->inputs[0] + ln_offset_of(&kept, i);
        int64_t best_at = 0, stride = x->strides[axis];
        float best = p[0];
        for (int64_t k = 1; k < x->dims[axis]; k++) {
            float v = p[k * stride];
            bool better = largest ? !(v <= best) : !(v >= best); /* also true if v is NaN, which counts as the
                                                                    extreme */
            if (best != best) better = last && v != v;
            if (better || (last && v == best)) {
                best = v;
                best_at = k;
            }
        }
        ((int64_t *)b->outputs[0])[ln_offset_of(y, i)] = best_at;
    }
    return LINNET_OK;
}

static LN_PLANNING void LN_SIMD_NAME(arg_cost)(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    (void)kernel;
    counts->work[LN_RATE_MOVE] += (double)ln_count(&call->inputs[0]);
}

const ln_kernel_code LN_SIMD_NAME(ln_reduce_arg) = {.can = LN_SIMD_NAME(arg_can),
                                                    .cost = LN_SIMD_NAME(arg_cost),
                                                    .configure = LN_SIMD_NAME(arg_configure),
                                                    .run = LN_SIMD_NAME(arg_run)};
#endif
