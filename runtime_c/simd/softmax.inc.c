/* softmax.inc.c - softmax and log-softmax of contiguous lines in f32.
 * Compiled per ISA by longtail__<isa>.c. Which calls qualify: ops/norm_plan.c. */
#include "ops/norm.h"
#include "simd/any.inc.c"

/* exp(x) for x <= 0: x = n ln 2 + r, a polynomial in r (Cephes expf, S. L. Moshier), 2^n by its exponent bits. Below
 * -87 it gives about 1e-38. */
static inline vf exp_not_positive(vf x) {
    x = vf_max(x, vf_set1(-87.0f));
    vf n = vf_round(vf_mul(x, vf_set1(1.44269504088896341f)));
    vf r = vf_fma(n, vf_set1(-0.693359375f), x);
    r = vf_fma(n, vf_set1(2.12194440e-4f), r);
    vf p = vf_set1(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set1(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set1(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set1(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set1(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set1(5.0000001201e-1f));
    p = vf_add(vf_fma(vf_mul(r, r), p, r), vf_set1(1.0f));
    return vi_as_vf(vi_add(vf_as_vi(p), vi_shl(vi_from_vf(n), 23)));
}

static void softmax_line(const float *x, int64_t n, bool logarithm, float *y) {
    int64_t whole = n - n % VF_WIDTH;
    int rest = (int)(n - whole);
    vm tail = vm_first(rest);
    const vf lowest = vf_set1(-INFINITY);
    vf most = lowest;
    for (int64_t i = 0; i < whole; i += VF_WIDTH) most = vf_max(most, vf_load(x + i));
    if (rest > 0) most = vf_max(most, vf_select(tail, vf_load_partial(x + whole, rest), lowest));
    float top = vf_reduce_max(most);
    vf shift = vf_set1(top), total = vf_zero();
    for (int64_t i = 0; i < whole; i += VF_WIDTH) {
        vf v = vf_sub(vf_load(x + i), shift), e = exp_not_positive(v);
        total = vf_add(total, e);
        vf_store(y + i, logarithm ? v : e);
    }
    if (rest > 0) {
        vf v = vf_sub(vf_load_partial(x + whole, rest), shift), e = vf_select(tail, exp_not_positive(v), vf_zero());
        total = vf_add(total, e);
        vf_store_partial(y + whole, rest, logarithm ? v : e);
    }
    float sum = vf_reduce_add(total);
    vf factor = vf_set1(1.0f / sum), less = vf_set1(logf(sum));
    for (int64_t i = 0; i < n; i += VF_WIDTH) {
        int count = (int)ln_min(VF_WIDTH, n - i);
        vf v = count == VF_WIDTH ? vf_load(y + i) : vf_load_partial(y + i, count);
        v = logarithm ? vf_sub(v, less) : vf_mul(v, factor);
        if (count == VF_WIDTH)
            vf_store(y + i, v);
        else
            vf_store_partial(y + i, count, v);
    }
}

static linnet_status softmax_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                 int thread) {
    (void)phase;
    const ln_lines *lines = call->state;
    int dtype = call->inputs[0].dtype;
    bool logarithm = ((const ln_softmax_attributes *)call->attributes)->log != 0;
    float *scratch = (float *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    for (int64_t item = begin; item < end; item++) {
        int64_t in, out;
        ln_line_offsets(lines, item, &in, &out);
        if (dtype == LINNET_F32) {
            softmax_line((const float *)b->inputs[0] + in, lines->length, logarithm, (float *)b->outputs[0] + out);
        } else {
            any_widen(dtype, b->inputs[0], in, lines->length, scratch);
            softmax_line(scratch, lines->length, logarithm, scratch);
            any_narrow(dtype, scratch, lines->length, b->outputs[0], out);
        }
    }
    return LINNET_OK;
}

const ln_kernel LN_SIMD_NAME(ln_softmax) = {.name = "softmax_lines__" LN_SIMD_TEXT,
                                            .op = LN_OP_SOFTMAX,
                                            .isa = LN_SIMD_ISA,
                                            .flags = LN_KERNEL_VIEWS,
                                            .supports = ln_softmax_supports,
                                            .configure = ln_softmax_configure,
                                            .run = softmax_run};
