/* peak__neon.c - fused multiply-adds; 8-bit integers are multiplied as 16-bit ones. */
#include <arm_neon.h>

#define PEAK_SET neon
#define PEAK_F32
#define PEAK_BYTES 16
#define PEAK_INTEGERS int32x4_t
#define PEAK_LOAD(c) vreinterpretq_s32_s8(vdupq_n_s8(c))
#define PEAK_DOT(sum, x) vmlal_s16(sum, vget_low_s16(vreinterpretq_s16_s32(x)), vget_low_s16(vreinterpretq_s16_s32(x)))
#define PEAK_DOT_OPERATIONS 8
#include "peak.inc.c"
