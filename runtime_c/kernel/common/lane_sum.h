/* lane_sum.h - the fixed order in which linnet sums floats: 16 interleaved lanes of f32 within a block of 2,048
   elements, and f64 over the blocks. Every ISA level, layout and thread count therefore gives the same bits. */
#ifndef LN_LANE_SUM_H
#define LN_LANE_SUM_H

#include <stdbool.h>
#include <stdint.h>

/* Element i of the summands, in row-major order of their logical shape, is added to lane i % 16. After every 2,048
 * elements, and at the end, the lanes are added as a tree (8 + 8, 4 + 4, 2 + 2, 1 + 1), and their sum is added to an
 * f64 total. 16 lanes are one vector of AVX-512, two of AVX2, or four of SSE2 and NEON. */
enum { LN_LANES = 16, LN_LANE_BLOCK = 2048 };

/* Returns the sum of 16 lanes, added as a tree. Overwrites the lanes. */
static inline float ln_lanes_added(float *lanes) {
    for (int half = LN_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

/* Maxima and minima use the same order, because 0 and -0 compare equal and the order decides which of them remains. NaN
 * replaces any number and stays. */
static inline float ln_extreme(float a, float b, bool largest) { return (largest ? b > a : b < a) || b != b ? b : a; }
static inline float ln_lanes_extreme(float *lanes, bool largest) {
    for (int half = LN_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] = ln_extreme(lanes[i], lanes[i + half], largest);
    return lanes[0];
}

#endif
