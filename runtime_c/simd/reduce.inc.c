/* reduce.inc.c - fast reductions over runs (innermost axis reduced) and over rows (innermost axis kept), per ISA level.
 * Sums go in blocks: f32 inside a block, blocks into f64, so errors stay small and never depend on threads. */
#include "ops/convert.h"
#include "ops/index.h"
#include "ops/reduce_axes.h"

#include <math.h>

enum { LN_REDUCE_ADD, LN_REDUCE_ADD_ABS, LN_REDUCE_ADD_SQUARE, LN_REDUCE_LARGEST, LN_REDUCE_SMALLEST };
#define LN_REDUCE_BLOCK 512 /* elements of a run, or rows, that are summed in f32 */
#define LN_ALWAYS static inline __attribute__((always_inline))

LN_ALWAYS vf LN_SIMD_NAME(reduce_load)(const char *p, int64_t i, int n, int dtype, vi zero) {
    if (dtype == LINNET_F32)
        return n == VF_WIDTH ? vf_load((const float *)(const void *)p + i) : vf_load_partial((const float *)(const void *)p + i, n);
    if (dtype == LINNET_F16)
        return n == VF_WIDTH ? vf_load_f16((const uint16_t *)(const void *)p + i) : vf_load_f16_partial((const uint16_t *)(const void *)p + i, n);
    if (dtype == LINNET_BF16)
        return n == VF_WIDTH ? vf_load_bf16((const uint16_t *)(const void *)p + i) : vf_load_bf16_partial((const uint16_t *)(const void *)p + i, n);
    vi v;
    if (dtype == LINNET_I8)
        v = n == VF_WIDTH ? vi_load_i8((const int8_t *)p + i) : vi_load_i8_partial((const int8_t *)p + i, n);
    else if (dtype == LINNET_U8)
        v = n == VF_WIDTH ? vi_load_u8((const uint8_t *)p + i) : vi_load_u8_partial((const uint8_t *)p + i, n);
    else
        v = n == VF_WIDTH ? vi_load_i16((const int16_t *)(const void *)p + i) : vi_load_i16_partial((const int16_t *)(const void *)p + i, n);
    return vf_from_vi(vi_sub(v, zero)); /* whole numbers: the scale is applied to the sum */
}

/* Accumulates x; lanes from n on keep their value. NaN sticks in `nan`. */
LN_ALWAYS void LN_SIMD_NAME(reduce_step)(vf *acc, vf *nan, vf x, int n, int how) {
    if (how >= LN_REDUCE_LARGEST) {
        vf next = how == LN_REDUCE_LARGEST ? vf_max(x, *acc) : vf_min(x, *acc); /* the accumulator where x is NaN */
        vf bad = vf_select(vf_eq(x, x), *nan, x);
        *acc = n == VF_WIDTH ? next : vf_select(vm_first(n), next, *acc);
        *nan = n == VF_WIDTH ? bad : vf_select(vm_first(n), bad, *nan);
        return;
    }
    vf v = how == LN_REDUCE_ADD ? x : how == LN_REDUCE_ADD_ABS ? vf_abs(x) : vf_mul(x, x);
    *acc = n == VF_WIDTH ? vf_add(*acc, v) : vf_select(vm_first(n), vf_add(*acc, v), *acc);
}

LN_ALWAYS vf LN_SIMD_NAME(reduce_start)(int how) {
    return vf_set1(how == LN_REDUCE_LARGEST ? -INFINITY : how == LN_REDUCE_SMALLEST ? INFINITY : 0.0f);
}

/* One run of n elements folded into *total (sums) or *extreme. */
LN_ALWAYS void LN_SIMD_NAME(reduce_run)(const char *p, int64_t n, int dtype, int how, vi zero, double *total, float *extreme,
                                        float *nan_seen) {
    vf nan = vf_zero();
    for (int64_t start = 0; start < n; start += LN_REDUCE_BLOCK * 4) {
        int64_t end = ln_min(n, start + LN_REDUCE_BLOCK * 4), i = start;
        vf acc[4];
        for (int k = 0; k < 4; k++)
            acc[k] = LN_SIMD_NAME(reduce_start)(how);
        for (; i + 4 * VF_WIDTH <= end; i += 4 * VF_WIDTH)
            for (int k = 0; k < 4; k++)
                LN_SIMD_NAME(reduce_step)(&acc[k], &nan, LN_SIMD_NAME(reduce_load)(p, i + k * VF_WIDTH, VF_WIDTH, dtype, zero), VF_WIDTH, how);
        for (; i < end; i += VF_WIDTH) {
            int left = (int)ln_min(VF_WIDTH, end - i);
            LN_SIMD_NAME(reduce_step)(&acc[0], &nan, LN_SIMD_NAME(reduce_load)(p, i, left, dtype, zero), left, how);
        }
        if (how == LN_REDUCE_LARGEST) {
            float v = vf_reduce_max(vf_max(vf_max(acc[0], acc[1]), vf_max(acc[2], acc[3])));
            *extreme = v > *extreme ? v : *extreme;
        } else if (how == LN_REDUCE_SMALLEST) {
            float v = vf_reduce_min(vf_min(vf_min(acc[0], acc[1]), vf_min(acc[2], acc[3])));
            *extreme = v < *extreme ? v : *extreme;
        } else {
            *total += (double)vf_reduce_add(vf_add(vf_add(acc[0], acc[1]), vf_add(acc[2], acc[3])));
        }
    }
    float sum = vf_reduce_add(nan); /* 0, or NaN when there was one */
    *nan_seen = sum == sum ? *nan_seen : sum;
}

/* Odometer over the reduced dims that are not innermost. */
LN_ALWAYS int64_t LN_SIMD_NAME(reduce_next)(const ln_reduce_plan *p, int64_t *at, int64_t offset) {
    for (int d = p->reduced - 1; d >= 0; d--) {
        offset += p->reduced_x[d];
        if (++at[d] < p->reduced_dims[d])
            break;
        offset -= p->reduced_dims[d] * p->reduced_x[d];
        at[d] = 0;
    }
    return offset;
}

static void LN_SIMD_NAME(reduce_finish)(const ln_call *call, const ln_reduce_plan *p, const ln_buffers *b, int64_t at, double v) {
    const ln_reduce_attributes *a = call->attributes;
    v *= (double)p->scale * p->factor;
    ln_store_float(b->outputs[0], call->outputs[0].dtype, at, a->kind == LN_REDUCE_KIND_L2 ? sqrt(v) : v);
}

LN_ALWAYS void LN_SIMD_NAME(reduce_item)(const ln_call *call, const ln_reduce_plan *p, const ln_buffers *b, int64_t x_at,
                                         int64_t y_at, int64_t first, int dtype, int how) {
    const char *x = b->inputs[0];
    int64_t size = (int64_t)ln_dtype_size(dtype), at[LN_MAX_RANK] = {0}, offset = x_at;
    vi zero = vi_set1(p->zero);
    if (!p->columns) {
        double total = 0.0;
        float extreme = how == LN_REDUCE_LARGEST ? -INFINITY : INFINITY, nan = 0.0f;
        for (int64_t r = 0; r < p->reduced_count; r++) {
            LN_SIMD_NAME(reduce_run)(x + offset * size, p->inner, dtype, how, zero, &total, &extreme, &nan);
            offset = LN_SIMD_NAME(reduce_next)(p, at, offset);
        }
        double v = how < LN_REDUCE_LARGEST ? total : nan == nan ? (double)extreme : (double)nan;
        LN_SIMD_NAME(reduce_finish)(call, p, b, y_at, v);
        return;
    }
    int64_t width = ln_min(p->block, p->inner - first);
    double totals[64] = {0.0};
    float extremes[64];
    enum { VECTORS = 64 / VF_WIDTH };
    vf acc[VECTORS], nan[VECTORS];
    for (int k = 0; k < VECTORS; k++) {
        acc[k] = LN_SIMD_NAME(reduce_start)(how);
        nan[k] = vf_zero();
    }
    for (int64_t r = 0; r < p->reduced_count;) {
        int64_t stop = ln_min(p->reduced_count, r + LN_REDUCE_BLOCK);
        for (; r < stop; r++) {
            if (width == 64) {
                for (int k = 0; k < VECTORS; k++)
                    LN_SIMD_NAME(reduce_step)(&acc[k], &nan[k], LN_SIMD_NAME(reduce_load)(x + offset * size, first + k * VF_WIDTH, VF_WIDTH, dtype, zero), VF_WIDTH, how);
            } else {
                for (int k = 0; k * VF_WIDTH < width; k++) {
                    int n = (int)ln_min(VF_WIDTH, width - k * VF_WIDTH);
                    LN_SIMD_NAME(reduce_step)(&acc[k], &nan[k], LN_SIMD_NAME(reduce_load)(x + offset * size, first + k * VF_WIDTH, n, dtype, zero), n, how);
                }
            }
            offset = LN_SIMD_NAME(reduce_next)(p, at, offset);
        }
        for (int k = 0; k < VECTORS && how < LN_REDUCE_LARGEST; k++) {
            vf_store(extremes + k * VF_WIDTH, acc[k]);
            acc[k] = vf_zero();
        }
        for (int64_t i = 0; i < width && how < LN_REDUCE_LARGEST; i++)
            totals[i] += (double)extremes[i];
    }
    for (int k = 0; k < VECTORS && how >= LN_REDUCE_LARGEST; k++)
        vf_store(extremes + k * VF_WIDTH, vf_select(vf_eq(nan[k], nan[k]), acc[k], nan[k]));
    for (int64_t i = 0; i < width; i++)
        LN_SIMD_NAME(reduce_finish)(call, p, b, y_at + (first + i) * p->inner_y, how < LN_REDUCE_LARGEST ? totals[i] : (double)extremes[i]);
}

static linnet_status LN_SIMD_NAME(reduce_work)(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                               int thread) {
    (void)phase;
    (void)thread;
    const ln_reduce_plan *p = call->state;
    int64_t kind = ((const ln_reduce_attributes *)call->attributes)->kind;
    int dtype = call->inputs[0].dtype;
    for (int64_t item = begin; item < end; item++) {
        int64_t rest = item / p->blocks, first = item % p->blocks * p->block, x_at = 0, y_at = 0;
        for (int d = p->kept - 1; d >= 0; d--) {
            int64_t c = rest % p->kept_dims[d];
            rest /= p->kept_dims[d];
            x_at += c * p->kept_x[d];
            y_at += c * p->kept_y[d];
        }
#define LN_REDUCE_CASE(dtype, how) LN_SIMD_NAME(reduce_item)(call, p, b, x_at, y_at, first, dtype, how)
        switch (dtype) {
        case LINNET_F16: LN_REDUCE_CASE(LINNET_F16, LN_REDUCE_ADD); break;
        case LINNET_BF16: LN_REDUCE_CASE(LINNET_BF16, LN_REDUCE_ADD); break;
        case LINNET_I8: LN_REDUCE_CASE(LINNET_I8, LN_REDUCE_ADD); break;
        case LINNET_U8: LN_REDUCE_CASE(LINNET_U8, LN_REDUCE_ADD); break;
        case LINNET_I16: LN_REDUCE_CASE(LINNET_I16, LN_REDUCE_ADD); break;
        default:
            switch (kind) {
            case LN_REDUCE_KIND_MAX: LN_REDUCE_CASE(LINNET_F32, LN_REDUCE_LARGEST); break;
            case LN_REDUCE_KIND_MIN: LN_REDUCE_CASE(LINNET_F32, LN_REDUCE_SMALLEST); break;
            case LN_REDUCE_KIND_L1: LN_REDUCE_CASE(LINNET_F32, LN_REDUCE_ADD_ABS); break;
            case LN_REDUCE_KIND_L2:
            case LN_REDUCE_KIND_SUM_SQUARE: LN_REDUCE_CASE(LINNET_F32, LN_REDUCE_ADD_SQUARE); break;
            default: LN_REDUCE_CASE(LINNET_F32, LN_REDUCE_ADD); break;
            }
            break;
        }
#undef LN_REDUCE_CASE
    }
    return LINNET_OK;
}

static bool LN_SIMD_NAME(reduce_supports)(const ln_call *call) {
    ln_reduce_plan plan;
    return ln_reduce_make_plan(call, &plan);
}

static linnet_status LN_SIMD_NAME(reduce_configure)(ln_call *call) {
    ln_reduce_plan *p = ln_call_state(call, sizeof *p);
    if (!p)
        return LINNET_OUT_OF_MEMORY;
    ln_reduce_make_plan(call, p);
    call->state = p;
    call->work[0] = p->blocks;
    for (int d = 0; d < p->kept; d++)
        call->work[0] *= p->kept_dims[d];
    call->grain = ln_max(1, 16384 / ln_max(1, ln_count(&call->inputs[0]) / ln_max(1, call->work[0])));
    return LINNET_OK;
}

const ln_kernel LN_SIMD_NAME(ln_reduce_simd) = {
    .name = "reduce_any_runs_and_rows_64__" LN_SIMD_TEXT,
    .op = LN_OP_REDUCE,
    .isa = LN_SIMD_ISA,
    .flags = LN_KERNEL_VIEWS,
    .supports = LN_SIMD_NAME(reduce_supports),
    .configure = LN_SIMD_NAME(reduce_configure),
    .run = LN_SIMD_NAME(reduce_work),
};

/* ---- argmax and argmin of f32 along one axis, in any layout: scalar code, so the plainest ISA level stands for all ---- */

#if defined(LN_SIMD_SSE2) || defined(LN_SIMD_NEON)

static bool LN_SIMD_NAME(arg_supports)(const ln_call *call) {
    const ln_reduce_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0];
    uint32_t mask;
    bool bad;
    return call->epilogue == NULL && x->dtype == LINNET_F32 && call->outputs[0].dtype == LINNET_I64 && ln_count(x) > 0 &&
           (a->kind == LN_REDUCE_KIND_ARGMAX || a->kind == LN_REDUCE_KIND_ARGMIN) &&
           ln_reduce_mask(a, call->inputs, call->n_inputs, &mask, &bad) && mask != 0 && (mask & (mask - 1)) == 0;
}

static linnet_status LN_SIMD_NAME(arg_configure)(ln_call *call) {
    call->work[0] = ln_count(&call->outputs[0]);
    call->grain = ln_max(1, 16384 * call->work[0] / ln_count(&call->inputs[0]));
    return LINNET_OK;
}

static linnet_status LN_SIMD_NAME(arg_run)(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                           int thread) {
    (void)phase;
    (void)thread;
    const ln_reduce_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    ln_tensor kept = *x;
    uint32_t mask;
    bool bad, largest = a->kind == LN_REDUCE_KIND_ARGMAX, last = a->select_last_index != 0;
    int axis = 0;
    ln_reduce_mask(a, call->inputs, call->n_inputs, &mask, &bad);
    while (!(mask >> axis & 1u))
        axis++;
    kept.dims[axis] = 1;
    for (int64_t i = begin; i < end; i++) {
        const float *p = (const float *)b->inputs[0] + ln_offset_of(&kept, i);
        int64_t best_at = 0, stride = x->strides[axis];
        float best = p[0];
        for (int64_t k = 1; k < x->dims[axis]; k++) {
            float v = p[k * stride];
            bool better = largest ? !(v <= best) : !(v >= best); /* also when v is NaN, the extreme */
            if (best != best)
                better = last && v != v;
            if (better || (last && v == best)) {
                best = v;
                best_at = k;
            }
        }
        ((int64_t *)b->outputs[0])[ln_offset_of(y, i)] = best_at;
    }
    return LINNET_OK;
}

const ln_kernel LN_SIMD_NAME(ln_reduce_arg) = {
    .name = "reduce_f32_arg_1__" LN_SIMD_TEXT,
    .op = LN_OP_REDUCE,
    .isa = LN_SIMD_ISA,
    .flags = LN_KERNEL_VIEWS,
    .supports = LN_SIMD_NAME(arg_supports),
    .configure = LN_SIMD_NAME(arg_configure),
    .run = LN_SIMD_NAME(arg_run),
};
#endif
