/* lane_sum.inc.c - sums in the order of kernel/common/lane_sum.h with vectors: 16 lanes are one, two or four vectors.
 * Included by the kernels that sum floats. Needs simd/simd.h. */
#ifndef LN_LANE_SUM_INC
#define LN_LANE_SUM_INC

#include "kernel/common/lane_sum.h"

enum { LN_LANE_VECTORS = LN_LANES / VF_WIDTH };

/* Copies the last 1 to 15 elements to a whole group and fills the group up with `fill`, which must not change the
 * sum. */
LN_SIMD_APART void lane_tail(const float *x, int n, float fill, float *tail) {
    for (int k = 0; k < LN_LANES; k += VF_WIDTH, n -= VF_WIDTH) {
        vf v = vf_set1(fill);
        if (n >= VF_WIDTH)
            v = vf_load(x + k);
        else if (n > 0)
            v = vf_select(vm_first(n), vf_load_partial(x + k, n), v);
        vf_store(tail + k, v);
    }
}

static inline float lane_tree(vf *lanes) {
    LN_SIMD_UNROLL
    for (int half = LN_LANE_VECTORS / 2; half > 0; half /= 2) {
        LN_SIMD_UNROLL
        for (int k = 0; k < half; k++) lanes[k] = vf_add(lanes[k], lanes[k + half]);
    }
    return vf_reduce_add(lanes[0]);
}

/* Returns the sum of x - shift, or of its squares. */
LN_SIMD_APART double lane_sum(const float *x, int64_t n, float shift, bool squares) {
    vf less = vf_set1(shift);
    double total = 0.0;
    for (int64_t start = 0; start < n; start += LN_LANE_BLOCK) {
        int64_t end = ln_min(n, start + LN_LANE_BLOCK), i = start;
        vf lanes[LN_LANE_VECTORS];
        LN_SIMD_UNROLL
        for (int k = 0; k < LN_LANE_VECTORS; k++) lanes[k] = vf_zero();
        for (; i + LN_LANES <= end; i += LN_LANES) {
            LN_SIMD_UNROLL
            for (int k = 0; k < LN_LANE_VECTORS; k++) {
                vf v = vf_sub(vf_load(x + i + k * VF_WIDTH), less);
                lanes[k] = vf_add(lanes[k], squares ? vf_mul(v, v) : v);
            }
        }
        LN_SIMD_UNROLL
        for (int k = 0; k < LN_LANE_VECTORS; k++) {
            int left = (int)(end - i) - k * VF_WIDTH;
            if (left > 0) {
                vf v = left >= VF_WIDTH ? vf_load(x + end - left) : vf_load_partial(x + end - left, left);
                v = vf_sub(vf_select(vm_first(left), v, less), less);
                lanes[k] = vf_add(lanes[k], squares ? vf_mul(v, v) : v);
            }
        }
        total += (double)lane_tree(lanes);
    }
    return total;
}

#endif
