/* simd_neon.h - the vectors of simd.h on every ARMv8 in 64-bit mode, and on ARMv7 with NEON: 4 lanes.
 * simd.h describes the functions. On 32 bits, denormal floats count as 0. */
#ifndef LN_SIMD_NEON_H
#define LN_SIMD_NEON_H

#ifdef __aarch64__
#include <arm_neon.h>
#define LN_SIMD_NEON64 /* 32 registers, and instructions of ARMv8 */
#else
#include "simd/neon_a32.h"
#endif
#if defined(__aarch64__) || defined(__ARM_FEATURE_FMA)
#define VF_FMA_DIVIDES /* quotients are computed by fused multiply-adds */
#endif

#define VF_WIDTH 4
typedef float32x4_t vf;
typedef int32x4_t vi;
typedef uint32x4_t vm;

static inline vf vf_set1(float x) { return vdupq_n_f32(x); }
static inline vf vf_load(const float *p) { return vld1q_f32(p); }
static inline void vf_store(float *p, vf v) { vst1q_f32(p, v); }
static inline vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
static inline vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
static inline vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
static inline vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
static inline vf vf_sqrt(vf a) { return vsqrtq_f32(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static inline vf vf_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); } /* vminq would return NaN */
static inline vf vf_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline vf vf_round(vf a) { return vrndnq_f32(a); }
static inline vf vf_trunc(vf a) { return vrndq_f32(a); }
static inline vi vf_as_vi(vf a) { return vreinterpretq_s32_f32(a); }
static inline vf vi_as_vf(vi a) { return vreinterpretq_f32_s32(a); }
static inline vf vf_from_vi(vi a) { return vcvtq_f32_s32(a); }
#ifdef __aarch64__
static inline vf vf_from_parts(vi high, vi low) { /* the sum is exact in f64, so it is rounded once */
    const int64x2_t first = vaddw_s32(vshll_n_s32(vget_low_s32(high), 8), vget_low_s32(low));
    return vcvt_high_f32_f64(vcvt_f32_f64(vcvtq_f64_s64(first)),
                             vcvtq_f64_s64(vaddw_high_s32(vshll_high_n_s32(high, 8), low)));
}
#endif
static inline vi vi_from_vf(vf a) { return vcvtnq_s32_f32(a); }
static inline vi vi_trunc_vf(vf a) { return vcvtq_s32_f32(a); }
static inline vm vf_lt(vf a, vf b) { return vcltq_f32(a, b); }
static inline vm vf_le(vf a, vf b) { return vcleq_f32(a, b); }
static inline vm vf_gt(vf a, vf b) { return vcgtq_f32(a, b); }
static inline vm vf_ge(vf a, vf b) { return vcgeq_f32(a, b); }
static inline vm vf_eq(vf a, vf b) { return vceqq_f32(a, b); }
static inline vm vm_and(vm a, vm b) { return vandq_u32(a, b); }
static inline vm vm_or(vm a, vm b) { return vorrq_u32(a, b); }
static inline vm vm_not(vm a) { return vmvnq_u32(a); }
static inline vi vi_select(vm m, vi a, vi b) { return vbslq_s32(m, a, b); }
static inline vf vf_select(vm m, vf a, vf b) { return vbslq_f32(m, a, b); }

static inline vi vi_set1(int32_t x) { return vdupq_n_s32(x); }
static inline vi vi_load(const int32_t *p) { return vld1q_s32(p); }
static inline void vi_store(int32_t *p, vi v) { vst1q_s32(p, v); }
static inline vi vi_add(vi a, vi b) { return vaddq_s32(a, b); }
static inline vi vi_sub(vi a, vi b) { return vsubq_s32(a, b); }
static inline vi vi_mul(vi a, vi b) { return vmulq_s32(a, b); }
static inline vm vi_eq(vi a, vi b) { return vceqq_s32(a, b); }
static inline vm vi_gt(vi a, vi b) { return vcgtq_s32(a, b); }
static inline vi vi_min(vi a, vi b) { return vminq_s32(a, b); }
static inline vi vi_max(vi a, vi b) { return vmaxq_s32(a, b); }
static inline vi vi_max_i8(vi a, vi b) {
    return vreinterpretq_s32_s8(vmaxq_s8(vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b)));
}
static inline vi vi_max_u8(vi a, vi b) {
    return vreinterpretq_s32_u8(vmaxq_u8(vreinterpretq_u8_s32(a), vreinterpretq_u8_s32(b)));
}
static inline vi vi_max_i16(vi a, vi b) {
    return vreinterpretq_s32_s16(vmaxq_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)));
}
static inline vi vi_and(vi a, vi b) { return vandq_s32(a, b); }
static inline vi vi_or(vi a, vi b) { return vorrq_s32(a, b); }
static inline vi vi_xor(vi a, vi b) { return veorq_s32(a, b); }
static inline vi vi_shl(vi a, int n) { return vshlq_s32(a, vdupq_n_s32(n)); }
static inline vi vi_sar(vi a, int n) { return vshlq_s32(a, vdupq_n_s32(-n)); }
static inline vi vi_shr(vi a, int n) {
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-n)));
}

/* ln_fixed_multiply of kernel/common/requant.h for each lane: fixed >= 0, real = fixed * 2^(shift - 31), shift in
 * [-31, 31]. The rounding shift of NEON rounds halves up. Subtracting 1 from negative lanes first makes it round halves
 * away from zero. The subtraction does not wrap, because the high product is never INT32_MIN. */
#define VI_FIXED_MULTIPLY 1
static inline vi vi_fixed_multiply(vi x, vi fixed, vi shift) {
    vi right = vminq_s32(shift, vdupq_n_s32(0));
    x = vqrdmulhq_s32(vshlq_s32(x, vmaxq_s32(shift, vdupq_n_s32(0))), fixed);
    return vrshlq_s32(vsraq_n_s32(x, vandq_s32(x, right), 31), right);
}
/* ln_fixed_multiply_single; shift in [-31, 30]. */
#define VI_FIXED_MULTIPLY_SINGLE 1
static inline vi vi_fixed_multiply_single(vi x, vi fixed, vi shift) {
    vi down = vsubq_s32(shift, vdupq_n_s32(31));
    int64x2_t low = vrshlq_s64(vmull_s32(vget_low_s32(x), vget_low_s32(fixed)), vmovl_s32(vget_low_s32(down)));
    int64x2_t high = vrshlq_s64(vmull_high_s32(x, fixed), vmovl_high_s32(down));
    return vqmovn_high_s64(vqmovn_s64(low), high);
}

/* Adds half by half, as on x86: (0 + 2) + (1 + 3). */
static inline float vf_reduce_add(vf a) {
    float32x2_t v = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(v, 0) + vget_lane_f32(v, 1);
}
static inline float vf_reduce_max(vf a) {
    a = vf_max(a, vextq_f32(a, a, 2));
    a = vf_max(a, vextq_f32(a, a, 1));
    return vgetq_lane_f32(a, 0);
}
static inline float vf_reduce_min(vf a) {
    a = vf_min(a, vextq_f32(a, a, 2));
    a = vf_min(a, vextq_f32(a, a, 1));
    return vgetq_lane_f32(a, 0);
}
static inline int32_t vi_reduce_add(vi a) { return vaddvq_s32(a); }

static inline vi vi_load_u8(const uint8_t *p) {
    uint32_t bytes;
    memcpy(&bytes, p, 4);
    uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes)));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
}
static inline vi vi_load_i8(const int8_t *p) {
    uint32_t bytes;
    memcpy(&bytes, p, 4);
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(bytes)))));
}
static inline vi vi_load_u16(const uint16_t *p) { return vreinterpretq_s32_u32(vmovl_u16(vld1_u16(p))); }
static inline vi vi_load_i16(const int16_t *p) { return vmovl_s16(vld1_s16(p)); }
static inline void vi_store_i8(int8_t *p, vi v) {
    int16x4_t h = vqmovn_s32(v);
    uint32_t bytes = vget_lane_u32(vreinterpret_u32_s8(vqmovn_s16(vcombine_s16(h, h))), 0);
    memcpy(p, &bytes, 4);
}
static inline void vi_store_u8(uint8_t *p, vi v) {
    int16x4_t h = vqmovn_s32(v);
    uint32_t bytes = vget_lane_u32(vreinterpret_u32_u8(vqmovun_s16(vcombine_s16(h, h))), 0);
    memcpy(p, &bytes, 4);
}
static inline void vi_store_i16(int16_t *p, vi v) { vst1_s16(p, vqmovn_s32(v)); }
static inline void vi_store_u16(uint16_t *p, vi v) { vst1_u16(p, vqmovun_s32(v)); }

/* Load four vectors from 16 bytes, and store 16 bytes from two vectors of 16-bit or four of 8-bit numbers. Stores drop
 * the high bits. */
static inline void vi_widen_i8(const int8_t *p, vi *a, vi *b, vi *c, vi *d) {
    int8x16_t bytes = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    *a = vmovl_s16(vget_low_s16(low));
    *b = vmovl_high_s16(low);
    *c = vmovl_s16(vget_low_s16(high));
    *d = vmovl_high_s16(high);
}
static inline void vi_widen_u8(const uint8_t *p, vi *a, vi *b, vi *c, vi *d) {
    uint8x16_t bytes = vld1q_u8(p);
    uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
    *a = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low)));
    *b = vreinterpretq_s32_u32(vmovl_high_u16(low));
    *c = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high)));
    *d = vreinterpretq_s32_u32(vmovl_high_u16(high));
}
static inline int16x8_t vi_low_halves(vi a, vi b) {
    return vuzp1q_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b));
}
static inline void vi_narrow_16(void *p, vi a, vi b) { vst1q_s16(p, vi_low_halves(a, b)); }
static inline void vi_narrow_8(void *p, vi a, vi b, vi c, vi d) {
    vst1q_s8(p, vuzp1q_s8(vreinterpretq_s8_s16(vi_low_halves(a, b)), vreinterpretq_s8_s16(vi_low_halves(c, d))));
}

static inline vf vf_load_bf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
#ifdef __aarch64__
static inline vf vf_load_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
static inline void vf_store_f16(uint16_t *p, vf v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))); }
/* Convert 16 numbers with loads and stores of two registers, and two vectors to one. */
static inline void vf_widen_f16(const uint16_t *p, float *to) {
    const float16x8_t a = vreinterpretq_f16_u16(vld1q_u16(p)), b = vreinterpretq_f16_u16(vld1q_u16(p + 8));
    vst1q_f32(to, vcvt_f32_f16(vget_low_f16(a)));
    vst1q_f32(to + 4, vcvt_high_f32_f16(a));
    vst1q_f32(to + 8, vcvt_f32_f16(vget_low_f16(b)));
    vst1q_f32(to + 12, vcvt_high_f32_f16(b));
}
static inline uint16x8_t vf_as_f16(vf a, vf b) { return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(a), b)); }
#else
static inline vf vf_load_f16(const uint16_t *p) {
    const vi bits = vi_load_u16(p), magnitude = vi_and(bits, vi_set1(0x7fff));
    /* The difference of the biases is added to the exponent; infinity and NaN keep all bits of theirs. */
    const vi normal = vi_add(vi_shl(magnitude, 13), vi_set1(112 << 23));
    const vi special = vi_and(vreinterpretq_s32_u32(vi_gt(magnitude, vi_set1(0x7bff))), vi_set1(0x7f800000));
    const vf small = vf_mul(vf_from_vi(magnitude), vf_set1(0x1p-24f)); /* denormals of f16 */
    const vi all = vi_select(vi_gt(vi_set1(0x400), magnitude), vf_as_vi(small), vi_or(normal, special));
    return vi_as_vf(vi_or(all, vi_shl(vi_xor(bits, magnitude), 16)));
}
static inline uint16x4_t vf_narrow_f16(vf v) {
    const vi bits = vf_as_vi(v), magnitude = vi_and(bits, vi_set1(INT32_MAX));
    /* Normal numbers: rebase the exponent and round the 13 dropped bits half to even. */
    const vi odd = vi_and(vi_shr(magnitude, 13), vi_set1(1));
    const vi normal = vi_shr(vi_add(vi_add(magnitude, vi_set1((int32_t)0xc8000fffu)), odd), 13);
    /* Denormals: adding 0.5 shifts the mantissa into place, and the addition rounds. */
    const vi half = vi_set1(0x3f000000);
    const vi denormal = vi_sub(vf_as_vi(vf_add(vi_as_vf(magnitude), vi_as_vf(half))), half);
    vi result = vi_select(vi_gt(vi_set1(0x38800000), magnitude), denormal, normal);
    /* From 65520 on, the result is infinity. NaN becomes a quiet NaN. */
    result = vi_select(vi_gt(magnitude, vi_set1(0x477fefff)), vi_set1(0x7c00), result);
    const vi nan = vi_or(vi_set1(0x7e00), vi_and(vi_shr(magnitude, 13), vi_set1(0x3ff)));
    result = vi_select(vi_gt(magnitude, vi_set1(0x7f800000)), nan, result);
    return vmovn_u32(vreinterpretq_u32_s32(vi_or(result, vi_shr(vi_xor(bits, magnitude), 16))));
}
static inline void vf_store_f16(uint16_t *p, vf v) { vst1_u16(p, vf_narrow_f16(v)); }
static inline void vf_widen_f16(const uint16_t *p, float *to) {
    for (int i = 0; i < 16; i += VF_WIDTH) vf_store(to + i, vf_load_f16(p + i));
}
static inline uint16x8_t vf_as_f16(vf a, vf b) { return vcombine_u16(vf_narrow_f16(a), vf_narrow_f16(b)); }
#endif
static inline void vf_store_bf16(uint16_t *p, vf v) {
    uint32x4_t bits = vreinterpretq_u32_f32(v);
    uint32x4_t top = vshrq_n_u32(bits, 16);
    uint32x4_t odd = vandq_u32(top, vdupq_n_u32(1));
    uint32x4_t rounded = vshrq_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
    uint32x4_t is_number = vceqq_f32(v, v);
    vst1_u16(p, vmovn_u32(vbslq_u32(is_number, rounded, vorrq_u32(top, vdupq_n_u32(0x40)))));
}

#endif
