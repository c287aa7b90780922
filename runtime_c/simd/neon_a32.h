/* neon_a32.h - for 32-bit ARM with NEON: the intrinsics of arm_neon.h that only 64-bit ARM has and that linnet's code
 * uses, with the same results. NEON of 32 bits takes denormal floats as 0 and gives 0 for them. */
#ifndef LN_SIMD_NEON_A32_H
#define LN_SIMD_NEON_A32_H

#include <arm_neon.h>

/* ---- upper halves of vectors ---- */

#define vmovl_high_s8(a) vmovl_s8(vget_high_s8(a))
#define vmovl_high_s16(a) vmovl_s16(vget_high_s16(a))
#define vmovl_high_s32(a) vmovl_s32(vget_high_s32(a))
#define vmovl_high_u8(a) vmovl_u8(vget_high_u8(a))
#define vmovl_high_u16(a) vmovl_u16(vget_high_u16(a))
#define vmull_high_s32(a, b) vmull_s32(vget_high_s32(a), vget_high_s32(b))
#define vmlal_high_s16(sum, a, b) vmlal_s16(sum, vget_high_s16(a), vget_high_s16(b))
#define vmlal_high_lane_s16(sum, a, b, lane) vmlal_lane_s16(sum, vget_high_s16(a), b, lane)
#define vqmovn_high_s16(low, a) vcombine_s8(low, vqmovn_s16(a))
#define vqmovn_high_s32(low, a) vcombine_s16(low, vqmovn_s32(a))
#define vqmovn_high_s64(low, a) vcombine_s32(low, vqmovn_s64(a))

/* ---- permutations ---- */

#define vuzp1q_s8(a, b) vuzpq_s8(a, b).val[0]
#define vuzp1q_s16(a, b) vuzpq_s16(a, b).val[0]
#define vzip1_u8(a, b) vzip_u8(a, b).val[0]
#define vzip2_u8(a, b) vzip_u8(a, b).val[1]
#define vzip1q_u16(a, b) vzipq_u16(a, b).val[0]
#define vzip2q_u16(a, b) vzipq_u16(a, b).val[1]
#define vtrn1q_u32(a, b) vtrnq_u32(a, b).val[0]
#define vtrn2q_u32(a, b) vtrnq_u32(a, b).val[1]
#define vtrn1q_u64(a, b) vcombine_u64(vget_low_u64(a), vget_low_u64(b))
#define vtrn2q_u64(a, b) vcombine_u64(vget_high_u64(a), vget_high_u64(b))

/* ---- all lanes ---- */

#define vaddvq_s32 ln_a32_add_lanes
static inline int32_t ln_a32_add_lanes(int32x4_t a) {
    const int32x2_t pair = vadd_s32(vget_low_s32(a), vget_high_s32(a));
    return vget_lane_s32(vpadd_s32(pair, pair), 0);
}

#define vmaxvq_s32 ln_a32_max_lanes
static inline int32_t ln_a32_max_lanes(int32x4_t a) {
    const int32x2_t pair = vmax_s32(vget_low_s32(a), vget_high_s32(a));
    return vget_lane_s32(vpmax_s32(pair, pair), 0);
}

#define vminvq_s8 ln_a32_min_bytes
static inline int8_t ln_a32_min_bytes(int8x16_t a) {
    int8x8_t v = vmin_s8(vget_low_s8(a), vget_high_s8(a));
    v = vpmin_s8(v, v);
    v = vpmin_s8(v, v);
    return vget_lane_s8(vpmin_s8(v, v), 0);
}

/* ---- floats ---- */

/* GCC makes scalar comparisons of these intrinsics unless it may take denormal floats as 0. */
#if defined(__GNUC__) && !defined(__clang__)
#define LN_A32_COMPARE(name, instruction)                                                                              \
    static inline uint32x4_t name(float32x4_t a, float32x4_t b) {                                                      \
        uint32x4_t mask;                                                                                               \
        __asm__(instruction ".f32 %q0, %q1, %q2" : "=w"(mask) : "w"(a), "w"(b));                                       \
        return mask;                                                                                                   \
    }
LN_A32_COMPARE(ln_a32_greater, "vcgt")
LN_A32_COMPARE(ln_a32_not_less, "vcge")
#define vcgtq_f32(a, b) ln_a32_greater(a, b)
#define vcgeq_f32(a, b) ln_a32_not_less(a, b)
#define vcltq_f32(a, b) ln_a32_greater(b, a)
#define vcleq_f32(a, b) ln_a32_not_less(b, a)
#endif

/* The number if one of the two is NaN. */
#define vmaxnmq_f32 ln_a32_max_number
static inline float32x4_t ln_a32_max_number(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vorrq_u32(vcgtq_f32(a, b), vmvnq_u32(vceqq_f32(b, b))), a, b);
}

#define vminnmq_f32 ln_a32_min_number
static inline float32x4_t ln_a32_min_number(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vorrq_u32(vcltq_f32(a, b), vmvnq_u32(vceqq_f32(b, b))), a, b);
}

/* Compilers divide, and take roots, lane by lane in the floating-point unit. */
#define vdivq_f32 ln_a32_divide
static inline float32x4_t ln_a32_divide(float32x4_t a, float32x4_t b) { return a / b; }

#define vsqrtq_f32 ln_a32_sqrt
static inline float32x4_t ln_a32_sqrt(float32x4_t a) {
    float lanes[4];
    vst1q_f32(lanes, a);
    for (int i = 0; i < 4; i++) lanes[i] = __builtin_sqrtf(lanes[i]);
    return vld1q_f32(lanes);
}

/* Rounds halves to even: 2^23 has no bits for fractions, and larger numbers have no fractions. */
#define vrndnq_f32 ln_a32_round
static inline float32x4_t ln_a32_round(float32x4_t a) {
    const float32x4_t whole = vdupq_n_f32(8388608.0f);
    const uint32x4_t sign = vdupq_n_u32(0x80000000u);
    const float32x4_t add = vbslq_f32(sign, a, whole), rounded = vsubq_f32(vaddq_f32(a, add), add);
    return vbslq_f32(vcaltq_f32(a, whole), vbslq_f32(sign, a, rounded), a);
}

#define vrndq_f32 ln_a32_truncate
static inline float32x4_t ln_a32_truncate(float32x4_t a) {
    const float32x4_t whole = vdupq_n_f32(8388608.0f), cut = vcvtq_f32_s32(vcvtq_s32_f32(a));
    return vbslq_f32(vcaltq_f32(a, whole), vbslq_f32(vdupq_n_u32(0x80000000u), a, cut), a);
}

/* As vrndnq_f32, without the care for the sign of 0. */
#define vcvtnq_s32_f32 ln_a32_to_integers
static inline int32x4_t ln_a32_to_integers(float32x4_t a) {
    const float32x4_t whole = vdupq_n_f32(8388608.0f), add = vbslq_f32(vdupq_n_u32(0x80000000u), a, whole);
    return vcvtq_s32_f32(vbslq_f32(vcaltq_f32(a, whole), vsubq_f32(vaddq_f32(a, add), add), a));
}

#if !defined(__ARM_FEATURE_FMA) /* Cortex-A8 and A9 round products before they add them */
#define vfmaq_f32(sum, a, b) vmlaq_f32(sum, a, b)
#endif

#endif
