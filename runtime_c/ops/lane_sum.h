/* lane_sum.h - the one order in which linnet sums floats, so that every ISA level, layout and thread count gives the
 * same bits: 16 interleaved lanes of f32 over blocks of 2,048 elements, and the blocks in f64. */
#ifndef LN_LANE_SUM_H
#define LN_LANE_SUM_H

#include <stdbool.h>
#include <stdint.h>

/* Element i of what is summed (row-major in its logical shape) is added to lane i % 16; after 2,048 elements, and at
 * the end, the lanes are added as a tree (8 + 8, 4 + 4, 2 + 2, 1 + 1), and the result goes to an f64 total. 16 lanes
 * are one vector of AVX-512, two of AVX2 and four of SSE2 and NEON. */
enum { LN_LANES = 16, LN_LANE_BLOCK = 2048 };

static inline float ln_lanes_added(float *lanes) {
    for (int half = LN_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

/* Extremes go the same way, so that of 0 and -0 the same one stays. NaN replaces any number, and stays. */
static inline float ln_extreme(float a, float b, bool largest) { return (largest ? b > a : b < a) || b != b ? b : a; }
static inline float ln_lanes_extreme(float *lanes, bool largest) {
    for (int half = LN_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] = ln_extreme(lanes[i], lanes[i + half], largest);
    return lanes[0];
}

#endif
