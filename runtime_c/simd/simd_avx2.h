/* simd_avx2.h - the vectors of simd.h with AVX2, FMA and F16C: 8 lanes.
 * simd.h describes the functions. */
#ifndef LN_SIMD_AVX2_H
#define LN_SIMD_AVX2_H

#include <immintrin.h>

#define VF_WIDTH 8
typedef __m256 vf;
typedef __m256i vi;
typedef __m256i vm;

static inline vf vf_set1(float x) { return _mm256_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf vf_sqrt(vf a) { return _mm256_sqrt_ps(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vi vf_as_vi(vf a) { return _mm256_castps_si256(a); }
static inline vf vi_as_vf(vi a) { return _mm256_castsi256_ps(a); }
static inline vf vf_from_vi(vi a) { return _mm256_cvtepi32_ps(a); }
static inline vi vi_add_pairs(vi sum, vi a, vi b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
static inline __m128 vf_four_from_wide(__m128i high, __m128i low, const double *more) {
    const __m256d v = _mm256_mul_pd(_mm256_cvtepi32_pd(high), _mm256_set1_pd(256));
    return _mm256_cvtpd_ps(_mm256_add_pd(_mm256_add_pd(v, _mm256_cvtepi32_pd(low)), _mm256_loadu_pd(more)));
}
static inline vf vf_from_wide(vi high, vi low, const double *more) {
    const __m128 first = vf_four_from_wide(_mm256_castsi256_si128(high), _mm256_castsi256_si128(low), more);
    return _mm256_set_m128(
        vf_four_from_wide(_mm256_extracti128_si256(high, 1), _mm256_extracti128_si256(low, 1), more + 4), first);
}
static inline vi vi_from_vf(vf a) { return _mm256_cvtps_epi32(a); }
static inline vi vi_trunc_vf(vf a) { return _mm256_cvttps_epi32(a); }
static inline vm vf_lt(vf a, vf b) { return vf_as_vi(_mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
static inline vm vf_le(vf a, vf b) { return vf_as_vi(_mm256_cmp_ps(a, b, _CMP_LE_OQ)); }
static inline vm vf_gt(vf a, vf b) { return vf_as_vi(_mm256_cmp_ps(a, b, _CMP_GT_OQ)); }
static inline vm vf_ge(vf a, vf b) { return vf_as_vi(_mm256_cmp_ps(a, b, _CMP_GE_OQ)); }
static inline vm vf_eq(vf a, vf b) { return vf_as_vi(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)); }
static inline vm vm_and(vm a, vm b) { return _mm256_and_si256(a, b); }
static inline vm vm_or(vm a, vm b) { return _mm256_or_si256(a, b); }
static inline vm vm_not(vm a) { return _mm256_xor_si256(a, _mm256_set1_epi32(-1)); }
static inline vi vi_select(vm m, vi a, vi b) { return _mm256_blendv_epi8(b, a, m); }
static inline vf vf_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, vi_as_vf(m)); }

static inline vi vi_set1(int32_t x) { return _mm256_set1_epi32(x); }
static inline vi vi_load(const int32_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
static inline void vi_store(int32_t *p, vi v) { _mm256_storeu_si256((__m256i *)p, v); }
static inline vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
static inline vi vi_sub(vi a, vi b) { return _mm256_sub_epi32(a, b); }
static inline vi vi_mul(vi a, vi b) { return _mm256_mullo_epi32(a, b); }
static inline vm vi_eq(vi a, vi b) { return _mm256_cmpeq_epi32(a, b); }
static inline vm vi_gt(vi a, vi b) { return _mm256_cmpgt_epi32(a, b); }
static inline vi vi_min(vi a, vi b) { return _mm256_min_epi32(a, b); }
static inline vi vi_max(vi a, vi b) { return _mm256_max_epi32(a, b); }
static inline vi vi_max_i8(vi a, vi b) { return _mm256_max_epi8(a, b); }
static inline vi vi_max_u8(vi a, vi b) { return _mm256_max_epu8(a, b); }
static inline vi vi_max_i16(vi a, vi b) { return _mm256_max_epi16(a, b); }
static inline vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
static inline vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
static inline vi vi_xor(vi a, vi b) { return _mm256_xor_si256(a, b); }
static inline vi vi_shl(vi a, int n) { return _mm256_sll_epi32(a, _mm_cvtsi32_si128(n)); }
static inline vi vi_sar(vi a, int n) { return _mm256_sra_epi32(a, _mm_cvtsi32_si128(n)); }
static inline vi vi_shr(vi a, int n) { return _mm256_srl_epi32(a, _mm_cvtsi32_si128(n)); }
/* ln_fixed_multiply of kernel/common/requant.h for each lane: fixed >= 0, real = fixed * 2^(shift - 31), shift in [-31,
 * 31]. The doubling high multiply is floor((x * fixed + 2^30) / 2^31) for every sign, and its result fits in 32 bits.
 */
#define VI_FIXED_MULTIPLY 1
static inline vi vi_fixed_multiply(vi x, vi fixed, vi shift) {
    vi zero = _mm256_setzero_si256(), one = _mm256_set1_epi32(1), nudge = _mm256_set1_epi64x(1 << 30);
    vi right = _mm256_max_epi32(_mm256_sub_epi32(zero, shift), zero);
    x = _mm256_sllv_epi32(x, _mm256_max_epi32(shift, zero));
    vi even = _mm256_add_epi64(_mm256_mul_epi32(x, fixed), nudge);
    vi odd = _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(fixed, 32)), nudge);
    x = _mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(_mm256_srli_epi64(odd, 31), 32), 0xAA);
    vi mask = _mm256_sub_epi32(_mm256_sllv_epi32(one, right), one);
    vi threshold = _mm256_add_epi32(_mm256_srli_epi32(mask, 1), _mm256_srli_epi32(x, 31));
    vi up = _mm256_cmpgt_epi32(_mm256_and_si256(x, mask), threshold);
    return _mm256_sub_epi32(_mm256_srav_epi32(x, right), up);
}

static inline vm vm_first(int n) { return vi_gt(vi_set1(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)); }
static inline vf vf_load_partial(const float *p, int n) { return _mm256_maskload_ps(p, vm_first(n)); }
/* Stores through a buffer, because a masked store takes a dozen cycles on some processors. */
static inline void vf_store_partial(float *p, int n, vf v) {
    __m128 part = _mm256_castps256_ps128(v);
    if (n == 8) {
        _mm256_storeu_ps(p, v);
        return;
    }
    if (n & 4) {
        _mm_storeu_ps(p, part);
        part = _mm256_extractf128_ps(v, 1);
        p += 4;
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)(void *)p, part);
        part = _mm_movehl_ps(part, part);
        p += 2;
    }
    if (n & 1) _mm_store_ss(p, part);
}
static inline vi vi_load_partial(const int32_t *p, int n) { return _mm256_maskload_epi32(p, vm_first(n)); }
static inline void vi_store_partial(int32_t *p, int n, vi v) { _mm256_maskstore_epi32(p, vm_first(n), v); }

static inline float vf_reduce_add(vf a) {
    __m128 v = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
}
static inline float vf_reduce_max(vf a) {
    __m128 v = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 1)));
}
static inline float vf_reduce_min(vf a) {
    __m128 v = _mm_min_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    v = _mm_min_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_min_ss(v, _mm_shuffle_ps(v, v, 1)));
}
static inline int32_t vi_reduce_add(vi a) {
    __m128i v = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1)));
}

static inline vi vi_load_u8(const uint8_t *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
static inline vi vi_load_i8(const int8_t *p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
static inline vi vi_load_u16(const uint16_t *p) { return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)); }
static inline vi vi_load_i16(const int16_t *p) { return _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)p)); }
static inline void vi_store_i8(int8_t *p, vi v) {
    __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(h, h));
}
static inline void vi_store_u8(uint8_t *p, vi v) {
    __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(h, h));
}
static inline void vi_store_i16(int16_t *p, vi v) {
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}
static inline void vi_store_u16(uint16_t *p, vi v) {
    _mm_storeu_si128((__m128i *)p, _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

static inline vf vf_load_bf16(const uint16_t *p) { return vi_as_vf(_mm256_slli_epi32(vi_load_u16(p), 16)); }
static inline vf vf_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
static inline void vf_store_f16(uint16_t *p, vf v) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline void vf_store_bf16(uint16_t *p, vf v) {
    vi bits = vf_as_vi(v);
    vi top = _mm256_srli_epi32(bits, 16);
    vi odd = vi_and(top, vi_set1(1));
    vi rounded = _mm256_srli_epi32(vi_add(bits, vi_add(odd, vi_set1(0x7fff))), 16);
    vm is_nan = vi_gt(vi_and(bits, vi_set1(INT32_MAX)), vi_set1(0x7f800000));
    vi_store_u16(p, vi_select(is_nan, vi_or(top, vi_set1(0x40)), rounded));
}

#endif
