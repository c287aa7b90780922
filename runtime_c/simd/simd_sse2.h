/* simd_sse2.h - the vectors of simd.h on every x86-64: 4 lanes, SSE2 only.
 * Functions that need SSE4.1 (blend, 32-bit min and multiply, rounding, packing) are composed of SSE2 instructions. */
#ifndef LN_SIMD_SSE2_H
#define LN_SIMD_SSE2_H

#include <emmintrin.h>

#define VF_WIDTH 4
typedef __m128 vf;
typedef __m128i vi;
typedef __m128i vm;

static inline vf vf_set1(float x) { return _mm_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm_storeu_ps(p, v); }
static inline vf vf_add(vf a, vf b) { return _mm_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm_div_ps(a, b); }
static inline vf vf_sqrt(vf a) { return _mm_sqrt_ps(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
static inline vf vf_min(vf a, vf b) { return _mm_min_ps(a, b); }
static inline vf vf_max(vf a, vf b) { return _mm_max_ps(a, b); }
static inline vi vf_as_vi(vf a) { return _mm_castps_si128(a); }
static inline vf vi_as_vf(vi a) { return _mm_castsi128_ps(a); }
static inline vf vf_from_vi(vi a) { return _mm_cvtepi32_ps(a); }
static inline vi vi_add_pairs(vi sum, vi a, vi b) { return _mm_add_epi32(sum, _mm_madd_epi16(a, b)); }
static inline __m128 vf_two_from_wide(vi high, vi low, const double *more) {
    const __m128d v = _mm_add_pd(_mm_mul_pd(_mm_cvtepi32_pd(high), _mm_set1_pd(256)), _mm_cvtepi32_pd(low));
    return _mm_cvtpd_ps(_mm_add_pd(v, _mm_loadu_pd(more)));
}
static inline vf vf_from_wide(vi high, vi low, const double *more) {
    return _mm_movelh_ps(vf_two_from_wide(high, low, more),
                         vf_two_from_wide(_mm_unpackhi_epi64(high, high), _mm_unpackhi_epi64(low, low), more + 2));
}
static inline vi vi_from_vf(vf a) { return _mm_cvtps_epi32(a); }
static inline vi vi_trunc_vf(vf a) { return _mm_cvttps_epi32(a); }
static inline vm vf_lt(vf a, vf b) { return vf_as_vi(_mm_cmplt_ps(a, b)); }
static inline vm vf_le(vf a, vf b) { return vf_as_vi(_mm_cmple_ps(a, b)); }
static inline vm vf_gt(vf a, vf b) { return vf_as_vi(_mm_cmpgt_ps(a, b)); }
static inline vm vf_ge(vf a, vf b) { return vf_as_vi(_mm_cmpge_ps(a, b)); }
static inline vm vf_eq(vf a, vf b) { return vf_as_vi(_mm_cmpeq_ps(a, b)); }
static inline vm vm_and(vm a, vm b) { return _mm_and_si128(a, b); }
static inline vm vm_or(vm a, vm b) { return _mm_or_si128(a, b); }
static inline vm vm_not(vm a) { return _mm_xor_si128(a, _mm_set1_epi32(-1)); }
static inline vi vi_select(vm m, vi a, vi b) { return _mm_or_si128(_mm_and_si128(m, a), _mm_andnot_si128(m, b)); }
static inline vf vf_select(vm m, vf a, vf b) { return vi_as_vf(vi_select(m, vf_as_vi(a), vf_as_vi(b))); }

static inline vi vi_set1(int32_t x) { return _mm_set1_epi32(x); }
static inline vi vi_load(const int32_t *p) { return _mm_loadu_si128((const __m128i *)p); }
static inline void vi_store(int32_t *p, vi v) { _mm_storeu_si128((__m128i *)p, v); }
static inline vi vi_add(vi a, vi b) { return _mm_add_epi32(a, b); }
static inline vi vi_sub(vi a, vi b) { return _mm_sub_epi32(a, b); }
static inline vi vi_mul(vi a, vi b) {
    __m128i even = _mm_mul_epu32(a, b);
    __m128i odd = _mm_mul_epu32(_mm_srli_epi64(a, 32), _mm_srli_epi64(b, 32));
    return _mm_unpacklo_epi32(_mm_shuffle_epi32(even, 0x08), _mm_shuffle_epi32(odd, 0x08));
}
static inline vm vi_eq(vi a, vi b) { return _mm_cmpeq_epi32(a, b); }
static inline vm vi_gt(vi a, vi b) { return _mm_cmpgt_epi32(a, b); }
static inline vi vi_min(vi a, vi b) { return vi_select(vi_gt(b, a), a, b); }
static inline vi vi_max(vi a, vi b) { return vi_select(vi_gt(a, b), a, b); }
static inline vi vi_max_i8(vi a, vi b) { return vi_select(_mm_cmpgt_epi8(a, b), a, b); }
static inline vi vi_max_u8(vi a, vi b) { return _mm_max_epu8(a, b); }
static inline vi vi_max_i16(vi a, vi b) { return _mm_max_epi16(a, b); }
static inline vi vi_and(vi a, vi b) { return _mm_and_si128(a, b); }
static inline vi vi_or(vi a, vi b) { return _mm_or_si128(a, b); }
static inline vi vi_xor(vi a, vi b) { return _mm_xor_si128(a, b); }
static inline vi vi_shl(vi a, int n) { return _mm_sll_epi32(a, _mm_cvtsi32_si128(n)); }
static inline vi vi_sar(vi a, int n) { return _mm_sra_epi32(a, _mm_cvtsi32_si128(n)); }
static inline vi vi_shr(vi a, int n) { return _mm_srl_epi32(a, _mm_cvtsi32_si128(n)); }

static inline vf vf_round(vf a) {
    /* Above 2^23 every float is an integer. The sign bit is restored, so that -0.3 gives -0. */
    vf magnitude = vi_as_vf(vi_and(vf_as_vi(a), vi_set1(INT32_MAX)));
    vf rounded = vf_from_vi(vi_from_vf(a));
    rounded = vi_as_vf(vi_or(vf_as_vi(rounded), vi_and(vf_as_vi(a), vi_set1(INT32_MIN))));
    return vf_select(vf_lt(magnitude, vf_set1(8388608.0f)), rounded, a);
}
static inline float vf_reduce_add(vf v) {
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
}
static inline float vf_reduce_max(vf v) {
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 1)));
}
static inline float vf_reduce_min(vf v) {
    v = _mm_min_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_min_ss(v, _mm_shuffle_ps(v, v, 1)));
}
static inline int32_t vi_reduce_add(vi v) {
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1)));
}

static inline vi vi_load_u8(const uint8_t *p) {
    int32_t bytes;
    memcpy(&bytes, p, 4);
    __m128i zero = _mm_setzero_si128();
    return _mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), zero), zero);
}
static inline vi vi_load_i8(const int8_t *p) {
    int32_t bytes;
    memcpy(&bytes, p, 4);
    __m128i v = _mm_cvtsi32_si128(bytes);
    v = _mm_unpacklo_epi8(v, v);
    return _mm_srai_epi32(_mm_unpacklo_epi16(v, v), 24);
}
static inline vi vi_load_u16(const uint16_t *p) {
    return _mm_unpacklo_epi16(_mm_loadl_epi64((const __m128i *)p), _mm_setzero_si128());
}
static inline vi vi_load_i16(const int16_t *p) {
    __m128i v = _mm_loadl_epi64((const __m128i *)p);
    return _mm_srai_epi32(_mm_unpacklo_epi16(v, v), 16);
}
static inline void vi_store_i8(int8_t *p, vi v) {
    v = _mm_packs_epi32(v, v);
    int32_t bytes = _mm_cvtsi128_si32(_mm_packs_epi16(v, v));
    memcpy(p, &bytes, 4);
}
static inline void vi_store_u8(uint8_t *p, vi v) {
    v = _mm_packs_epi32(v, v);
    int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(v, v));
    memcpy(p, &bytes, 4);
}
static inline void vi_store_i16(int16_t *p, vi v) { _mm_storel_epi64((__m128i *)p, _mm_packs_epi32(v, v)); }
static inline void vi_store_u16(uint16_t *p, vi v) {
    /* SSE2 has no unsigned pack, so this clamps, subtracts 32768, packs as signed, and flips the top bit. */
    v = vi_sub(vi_min(vi_max(v, vi_set1(0)), vi_set1(65535)), vi_set1(32768));
    v = _mm_xor_si128(_mm_packs_epi32(v, v), _mm_set1_epi16(INT16_MIN));
    _mm_storel_epi64((__m128i *)p, v);
}

static inline vf vf_load_bf16(const uint16_t *p) { return vi_as_vf(vi_shl(vi_load_u16(p), 16)); }
static inline vf vf_load_f16(const uint16_t *p) {
    /* A multiplication by 2^112 changes the bias of the exponent and also normalizes denormals. */
    vi h = vi_load_u16(p);
    vi magnitude = vi_and(h, vi_set1(0x7fff));
    vi sign = vi_shl(vi_xor(h, magnitude), 16);
    vf scaled = vf_mul(vi_as_vf(vi_shl(magnitude, 13)), vi_as_vf(vi_set1(0x77800000)));
    vi special = vi_and(vi_gt(magnitude, vi_set1(0x7bff)), vi_set1(0x7f800000));
    return vi_as_vf(vi_or(vi_or(vf_as_vi(scaled), special), sign));
}
/* Stores the low 16 bits of each lane. */
static inline void vi_store_low16(uint16_t *p, vi v) {
    v = _mm_srai_epi32(_mm_slli_epi32(v, 16), 16);
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi32(v, v));
}
static inline void vf_store_bf16(uint16_t *p, vf v) {
    vi bits = vf_as_vi(v);
    vi odd = vi_and(vi_shr(bits, 16), vi_set1(1));
    vi rounded = vi_shr(vi_add(bits, vi_add(odd, vi_set1(0x7fff))), 16);
    vi quiet = vi_or(vi_shr(bits, 16), vi_set1(0x40));
    vm is_nan = vi_gt(vi_and(bits, vi_set1(INT32_MAX)), vi_set1(0x7f800000));
    vi_store_low16(p, vi_select(is_nan, quiet, rounded));
}
static inline void vf_store_f16(uint16_t *p, vf v) {
    vi bits = vf_as_vi(v);
    vi magnitude = vi_and(bits, vi_set1(INT32_MAX));
    vi sign = vi_shr(vi_xor(bits, magnitude), 16);
    /* Normal numbers: rebase the exponent and round the 13 dropped bits half to even. */
    vi odd = vi_and(vi_shr(magnitude, 13), vi_set1(1));
    vi normal = vi_shr(vi_add(vi_add(magnitude, vi_set1((int32_t)0xc8000fffu)), odd), 13);
    /* Denormals: adding 0.5 shifts the mantissa into place, and the addition rounds. */
    vf half = vi_as_vf(vi_set1(0x3f000000));
    vi denormal = vi_sub(vf_as_vi(vf_add(vi_as_vf(magnitude), half)), vi_set1(0x3f000000));
    vi result = vi_select(vi_gt(vi_set1(0x38800000), magnitude), denormal, normal);
    /* From 65520 on, the result is infinity. NaN becomes a quiet NaN. */
    result = vi_select(vi_gt(magnitude, vi_set1(0x477fefff)), vi_set1(0x7c00), result);
    vi nan = vi_or(vi_set1(0x7e00), vi_and(vi_shr(magnitude, 13), vi_set1(0x3ff)));
    result = vi_select(vi_gt(magnitude, vi_set1(0x7f800000)), nan, result);
    vi_store_low16(p, vi_or(result, sign));
}

#endif
