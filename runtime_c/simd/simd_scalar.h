/* simd_scalar.h - the vectors of simd.h in plain C: 4 lanes in a struct, for any architecture.
 * Results have the same bits as on other ISAs, except vf_fma. Compilers vectorize much of this code. */
#ifndef LN_SIMD_SCALAR_H
#define LN_SIMD_SCALAR_H

#include "simd/math.h"

#define VF_WIDTH 4
typedef struct vf {
    float x[4];
} vf;
typedef struct vi {
    int32_t x[4];
} vi;
typedef vi vm; /* each lane is -1 (true) or 0 (false) */

#define LN_LANES(type, expression)                                                                                     \
    type y;                                                                                                            \
    for (int k = 0; k < 4; k++) y.x[k] = (expression);                                                                 \
    return y;

static inline vf vf_set1(float s) { LN_LANES(vf, s) }
static inline vf vf_load(const float *p) { LN_LANES(vf, p[k]) }
static inline void vf_store(float *p, vf v) { memcpy(p, v.x, sizeof v.x); }
static inline vf vf_add(vf a, vf b) { LN_LANES(vf, a.x[k] + b.x[k]) }
static inline vf vf_sub(vf a, vf b) { LN_LANES(vf, a.x[k] - b.x[k]) }
static inline vf vf_mul(vf a, vf b) { LN_LANES(vf, a.x[k] * b.x[k]) }
static inline vf vf_div(vf a, vf b) { LN_LANES(vf, a.x[k] / b.x[k]) }
static inline vf vf_sqrt(vf a) { LN_LANES(vf, sqrtf(a.x[k])) }
static inline vf vf_fma(vf a, vf b, vf c) { LN_LANES(vf, a.x[k] * b.x[k] + c.x[k]) }
static inline vf vf_min(vf a, vf b) { LN_LANES(vf, a.x[k] < b.x[k] ? a.x[k] : b.x[k]) }
static inline vf vf_max(vf a, vf b) { LN_LANES(vf, a.x[k] > b.x[k] ? a.x[k] : b.x[k]) }
static inline vf vf_round(vf a) { LN_LANES(vf, ln_round_f(a.x[k])) }
static inline vi vf_as_vi(vf a) { LN_LANES(vi, (int32_t)ln_bits_f(a.x[k])) }
static inline vf vi_as_vf(vi a) { LN_LANES(vf, ln_from_bits_f((uint32_t)a.x[k])) }
static inline vf vf_from_vi(vi a) { LN_LANES(vf, (float)a.x[k]) }
static inline vf vf_from_parts(vi a, vi b) { LN_LANES(vf, (float)((double)a.x[k] * 256 + b.x[k])) }
static inline vi vi_from_vf(vf a) { LN_LANES(vi, ln_f_to_i(ln_round_f(a.x[k]))) }
static inline vi vi_trunc_vf(vf a) { LN_LANES(vi, ln_f_to_i(a.x[k])) }
static inline vm vf_lt(vf a, vf b) { LN_LANES(vm, -(a.x[k] < b.x[k])) }
static inline vm vf_le(vf a, vf b) { LN_LANES(vm, -(a.x[k] <= b.x[k])) }
static inline vm vf_gt(vf a, vf b) { LN_LANES(vm, -(a.x[k] > b.x[k])) }
static inline vm vf_ge(vf a, vf b) { LN_LANES(vm, -(a.x[k] >= b.x[k])) }
static inline vm vf_eq(vf a, vf b) { LN_LANES(vm, -(a.x[k] == b.x[k])) }
static inline vm vm_and(vm a, vm b) { LN_LANES(vm, a.x[k] & b.x[k]) }
static inline vm vm_or(vm a, vm b) { LN_LANES(vm, a.x[k] | b.x[k]) }
static inline vm vm_not(vm a) { LN_LANES(vm, ~a.x[k]) }
static inline vi vi_select(vm m, vi a, vi b) { LN_LANES(vi, m.x[k] ? a.x[k] : b.x[k]) }
static inline vf vf_select(vm m, vf a, vf b) { LN_LANES(vf, m.x[k] ? a.x[k] : b.x[k]) }

static inline vi vi_set1(int32_t s) { LN_LANES(vi, s) }
static inline vi vi_load(const int32_t *p) { LN_LANES(vi, p[k]) }
static inline void vi_store(int32_t *p, vi v) { memcpy(p, v.x, sizeof v.x); }
static inline vi vi_add(vi a, vi b) { LN_LANES(vi, (int32_t)((uint32_t)a.x[k] + (uint32_t)b.x[k])) }
static inline vi vi_sub(vi a, vi b) { LN_LANES(vi, (int32_t)((uint32_t)a.x[k] - (uint32_t)b.x[k])) }
static inline vi vi_mul(vi a, vi b) { LN_LANES(vi, (int32_t)((uint32_t)a.x[k] * (uint32_t)b.x[k])) }
static inline vm vi_eq(vi a, vi b) { LN_LANES(vm, -(a.x[k] == b.x[k])) }
static inline vm vi_gt(vi a, vi b) { LN_LANES(vm, -(a.x[k] > b.x[k])) }
static inline vi vi_min(vi a, vi b) { LN_LANES(vi, a.x[k] < b.x[k] ? a.x[k] : b.x[k]) }
static inline vi vi_max(vi a, vi b) { LN_LANES(vi, a.x[k] > b.x[k] ? a.x[k] : b.x[k]) }
static inline vi vi_and(vi a, vi b) { LN_LANES(vi, a.x[k] & b.x[k]) }
static inline vi vi_or(vi a, vi b) { LN_LANES(vi, a.x[k] | b.x[k]) }
static inline vi vi_xor(vi a, vi b) { LN_LANES(vi, a.x[k] ^ b.x[k]) }
static inline vi vi_shl(vi a, int n) { LN_LANES(vi, ln_shl_i(a.x[k], n)) }
static inline vi vi_sar(vi a, int n) { LN_LANES(vi, ln_sar_i(a.x[k], n)) }
static inline vi vi_shr(vi a, int n) { LN_LANES(vi, ln_shr_i(a.x[k], n)) }
static inline float vf_reduce_add(vf a) { return (a.x[0] + a.x[2]) + (a.x[1] + a.x[3]); }
static inline float ln_scalar_max(float a, float b) { return a > b ? a : b; }
static inline float ln_scalar_min(float a, float b) { return a < b ? a : b; }
static inline float vf_reduce_max(vf a) {
    return ln_scalar_max(ln_scalar_max(a.x[0], a.x[2]), ln_scalar_max(a.x[1], a.x[3]));
}
static inline float vf_reduce_min(vf a) {
    return ln_scalar_min(ln_scalar_min(a.x[0], a.x[2]), ln_scalar_min(a.x[1], a.x[3]));
}
static inline int32_t vi_reduce_add(vi a) {
    return (int32_t)((uint32_t)a.x[0] + (uint32_t)a.x[1] + (uint32_t)a.x[2] + (uint32_t)a.x[3]);
}

static inline int32_t ln_scalar_clamp(int32_t v, int32_t low, int32_t high) {
    return v < low ? low : v > high ? high : v;
}
static inline vi vi_load_u8(const uint8_t *p) { LN_LANES(vi, p[k]) }
static inline vi vi_load_i8(const int8_t *p) { LN_LANES(vi, p[k]) }
static inline vi vi_load_u16(const uint16_t *p) { LN_LANES(vi, p[k]) }
static inline vi vi_load_i16(const int16_t *p) { LN_LANES(vi, p[k]) }
static inline void vi_store_i8(int8_t *p, vi v) {
    for (int k = 0; k < 4; k++) p[k] = (int8_t)ln_scalar_clamp(v.x[k], INT8_MIN, INT8_MAX);
}
static inline void vi_store_u8(uint8_t *p, vi v) {
    for (int k = 0; k < 4; k++) p[k] = (uint8_t)ln_scalar_clamp(v.x[k], 0, UINT8_MAX);
}
static inline void vi_store_i16(int16_t *p, vi v) {
    for (int k = 0; k < 4; k++) p[k] = (int16_t)ln_scalar_clamp(v.x[k], INT16_MIN, INT16_MAX);
}
static inline void vi_store_u16(uint16_t *p, vi v) {
    for (int k = 0; k < 4; k++) p[k] = (uint16_t)ln_scalar_clamp(v.x[k], 0, UINT16_MAX);
}
static inline vf vf_load_f16(const uint16_t *p) { LN_LANES(vf, ln_f16_to_f32(p[k])) }
static inline vf vf_load_bf16(const uint16_t *p) { LN_LANES(vf, ln_bf16_to_f32(p[k])) }
static inline void vf_store_f16(uint16_t *p, vf v) {
    for (int k = 0; k < 4; k++) p[k] = ln_f32_to_f16(v.x[k]);
}
static inline void vf_store_bf16(uint16_t *p, vf v) {
    for (int k = 0; k < 4; k++) p[k] = ln_f32_to_bf16(v.x[k]);
}

#endif
