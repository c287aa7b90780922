/* peak.inc.c - the loops of one instruction set: PEAK_SET, PEAK_BYTES of a vector, and PEAK_DOT(sum, x), the sum plus
 * products of 8-bit integers, PEAK_DOT_OPERATIONS of them. 12 sums hide the latency of two units of 6 cycles. */
#include "peak_loop.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

#if defined(PEAK_F32)
typedef float peak_floats __attribute__((vector_size(PEAK_BYTES)));

double JOIN(peak_f32_, PEAK_SET)(long rounds, volatile int *seed) {
    const peak_floats half = (peak_floats){0} + 0.5f * (float)*seed, one = (peak_floats){0} + (float)*seed;
    peak_floats total = {0};
#define BEGIN(i) peak_floats s##i = one * (float)i;
    TWELVE(BEGIN)
    for (long r = 0; r < rounds; r++) {
#define ADD(i) s##i = s##i * half + one;
        TWELVE(ADD)
    }
#define END(i) total += s##i;
    TWELVE(END)
    *seed = total[0] > 0; /* always 1 */
    return 2.0 * 12 * (double)rounds * (PEAK_BYTES / (int)sizeof(float));
#undef BEGIN
#undef ADD
#undef END
}
#endif

#if defined(PEAK_DOT)
double JOIN(peak_i8_, PEAK_SET)(long rounds, volatile int *seed) {
    const PEAK_INTEGERS x = PEAK_LOAD((char)*seed);
    int some = 0;
#define BEGIN(i) PEAK_INTEGERS s##i = PEAK_LOAD((char)(*seed + i)); /* equal sums would be computed once */
    TWELVE(BEGIN)
    for (long r = 0; r < rounds; r++) {
#define ADD(i) s##i = PEAK_DOT(s##i, x);
        TWELVE(ADD)
    }
#define END(i) some |= (int)s##i[0];
    TWELVE(END)
    *seed = some == 12345 ? 2 : 1; /* the sums are needed */
    return (double)PEAK_DOT_OPERATIONS * 12 * (double)rounds;
#undef BEGIN
#undef ADD
#undef END
}
#endif
