/* peak__dotprod.c - one instruction multiplies and sums 8-bit integers. */
#include <arm_neon.h>

#define PEAK_SET dotprod
#define PEAK_BYTES 16
#define PEAK_INTEGERS int32x4_t
#define PEAK_LOAD(c) vreinterpretq_s32_s8(vdupq_n_s8(c))
#define PEAK_DOT(sum, x) vdotq_s32(sum, vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(x))
#define PEAK_DOT_OPERATIONS 32
#include "peak.inc.c"
