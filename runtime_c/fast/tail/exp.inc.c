/* exp.inc.c - the exponential of numbers that are not positive, as softmax and gates need it.
 * Included by the kernels that use it. Needs simd/simd.h. */
#ifndef LN_EXP_INC
#define LN_EXP_INC

/* Returns the same bits as ln_exp_f of max(x, -87), for x <= 0. NaN is kept. */
static inline vf exp_not_positive(vf x) {
    const vf magic = vf_set1(12582912.0f);
    x = vf_max(vf_set1(-87.0f), x);
    vf t = vf_add(vf_mul(x, vf_set1(0x1.715476p+0f)), magic), n = vf_sub(t, magic);
    vf r = vf_sub(vf_sub(x, vf_mul(n, vf_set1(0x1.62e4p-1f))), vf_mul(n, vf_set1(0x1.7f7d1cp-20f)));
    vf p = vf_set1(0x1.6db4e6p-10f);
    p = vf_add(vf_mul(p, r), vf_set1(0x1.123be0p-7f));
    p = vf_add(vf_mul(p, r), vf_set1(0x1.55545ep-5f));
    p = vf_add(vf_mul(p, r), vf_set1(0x1.55548ep-3f));
    p = vf_add(vf_mul(p, r), vf_set1(0.5f));
    p = vf_add(vf_add(vf_mul(vf_mul(p, r), r), r), vf_set1(1.0f));
    return vf_mul(p, vi_as_vf(vi_shl(vi_add(vf_as_vi(t), vi_set1(127 - 0x4b400000)), 23)));
}

#endif
