/* simd_avx512.h - the vectors of simd.h with AVX-512 F, BW, DQ and VL: 16 lanes, masks in mask registers.
 * simd.h describes the functions. */
#ifndef LN_SIMD_AVX512_H
#define LN_SIMD_AVX512_H

#include <immintrin.h>

#define VF_WIDTH 16
#define VF_FMA_DIVIDES
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

static inline vm vm_first(int n) { return (vm)((1u << n) - 1u); }
static inline vf vf_set1(float x) { return _mm512_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
static inline vf vf_load_partial(const float *p, int n) { return _mm512_maskz_loadu_ps(vm_first(n), p); }
static inline void vf_store_partial(float *p, int n, vf v) { _mm512_mask_storeu_ps(p, vm_first(n), v); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vi vf_as_vi(vf a) { return _mm512_castps_si512(a); }
static inline vf vi_as_vf(vi a) { return _mm512_castsi512_ps(a); }
static inline vf vf_from_vi(vi a) { return _mm512_cvtepi32_ps(a); }
static inline vi vi_add_pairs(vi sum, vi a, vi b) { return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)); }
static inline __m256 vf_eight_from_wide(__m256i high, __m256i low, const double *more) {
    const __m512d v = _mm512_mul_pd(_mm512_cvtepi32_pd(high), _mm512_set1_pd(256));
    return _mm512_cvtpd_ps(_mm512_add_pd(_mm512_add_pd(v, _mm512_cvtepi32_pd(low)), _mm512_loadu_pd(more)));
}
static inline vf vf_from_wide(vi high, vi low, const double *more) {
    const __m256 first = vf_eight_from_wide(_mm512_castsi512_si256(high), _mm512_castsi512_si256(low), more);
    return _mm512_insertf32x8(
        _mm512_castps256_ps512(first),
        vf_eight_from_wide(_mm512_extracti64x4_epi64(high, 1), _mm512_extracti64x4_epi64(low, 1), more + 8), 1);
}
static inline vi vi_from_vf(vf a) { return _mm512_cvtps_epi32(a); }
static inline vi vi_trunc_vf(vf a) { return _mm512_cvttps_epi32(a); }
static inline vf vf_trunc(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
static inline vm vf_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline vm vf_le(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
static inline vm vf_gt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
static inline vm vf_ge(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
static inline vm vf_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
static inline vm vm_and(vm a, vm b) { return (vm)(a & b); }
static inline vm vm_or(vm a, vm b) { return (vm)(a | b); }
static inline vm vm_not(vm a) { return (vm)~a; }
static inline vi vi_select(vm m, vi a, vi b) { return _mm512_mask_blend_epi32(m, b, a); }
static inline vf vf_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }

static inline vi vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
static inline vi vi_load(const int32_t *p) { return _mm512_loadu_si512(p); }
static inline void vi_store(int32_t *p, vi v) { _mm512_storeu_si512(p, v); }
static inline vi vi_load_partial(const int32_t *p, int n) { return _mm512_maskz_loadu_epi32(vm_first(n), p); }
static inline void vi_store_partial(int32_t *p, int n, vi v) { _mm512_mask_storeu_epi32(p, vm_first(n), v); }
static inline vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
static inline vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
static inline vi vi_mul(vi a, vi b) { return _mm512_mullo_epi32(a, b); }
static inline vm vi_eq(vi a, vi b) { return _mm512_cmpeq_epi32_mask(a, b); }
static inline vm vi_gt(vi a, vi b) { return _mm512_cmpgt_epi32_mask(a, b); }
static inline vi vi_min(vi a, vi b) { return _mm512_min_epi32(a, b); }
static inline vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); }
static inline vi vi_max_i8(vi a, vi b) { return _mm512_max_epi8(a, b); }
static inline vi vi_max_u8(vi a, vi b) { return _mm512_max_epu8(a, b); }
static inline vi vi_max_i16(vi a, vi b) { return _mm512_max_epi16(a, b); }
static inline vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
static inline vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
static inline vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
static inline vi vi_shl(vi a, int n) { return _mm512_sll_epi32(a, _mm_cvtsi32_si128(n)); }
static inline vi vi_sar(vi a, int n) { return _mm512_sra_epi32(a, _mm_cvtsi32_si128(n)); }
static inline vi vi_shr(vi a, int n) { return _mm512_srl_epi32(a, _mm_cvtsi32_si128(n)); }
/* ln_fixed_multiply of kernel/common/requant.h for each lane; see simd_avx2.h. */
#define VI_FIXED_MULTIPLY 1
static inline vi vi_fixed_multiply(vi x, vi fixed, vi shift) {
    vi zero = _mm512_setzero_si512(), one = _mm512_set1_epi32(1), nudge = _mm512_set1_epi64(1 << 30);
    vi right = _mm512_max_epi32(_mm512_sub_epi32(zero, shift), zero);
    x = _mm512_sllv_epi32(x, _mm512_max_epi32(shift, zero));
    vi even = _mm512_add_epi64(_mm512_mul_epi32(x, fixed), nudge);
    vi odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(x, 32), _mm512_srli_epi64(fixed, 32)), nudge);
    odd = _mm512_slli_epi64(_mm512_srli_epi64(odd, 31), 32);
    x = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 31), odd);
    vi mask = _mm512_sub_epi32(_mm512_sllv_epi32(one, right), one);
    vi threshold = _mm512_add_epi32(_mm512_srli_epi32(mask, 1), _mm512_srli_epi32(x, 31));
    vm up = _mm512_cmpgt_epi32_mask(_mm512_and_si512(x, mask), threshold);
    vi y = _mm512_srav_epi32(x, right);
    return _mm512_mask_add_epi32(y, up, y, one);
}

static inline float vf_reduce_add(vf a) {
    __m256 w = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 v = _mm_add_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
}
static inline float vf_reduce_max(vf a) {
    __m256 w = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 v = _mm_max_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 1)));
}
static inline float vf_reduce_min(vf a) {
    __m256 w = _mm256_min_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 v = _mm_min_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    v = _mm_min_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_min_ss(v, _mm_shuffle_ps(v, v, 1)));
}
static inline int32_t vi_reduce_add(vi a) { return _mm512_reduce_add_epi32(a); }

static inline vi vi_load_u8(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
static inline vi vi_load_i8(const int8_t *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)); }
static inline vi vi_load_u16(const uint16_t *p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}
static inline vi vi_load_i16(const int16_t *p) { return _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)p)); }
static inline void vi_store_i8(int8_t *p, vi v) { _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(v)); }
static inline void vi_store_u8(uint8_t *p, vi v) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtusepi32_epi8(vi_max(v, vi_set1(0))));
}
static inline void vi_store_i16(int16_t *p, vi v) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtsepi32_epi16(v)); }
static inline void vi_store_u16(uint16_t *p, vi v) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtusepi32_epi16(vi_max(v, vi_set1(0))));
}

/* Load four vectors from 64 bytes, and store 64 bytes from two vectors of 16-bit or four of 8-bit numbers. Stores drop
 * the high bits. */
static inline void vi_widen_i8(const int8_t *p, vi *a, vi *b, vi *c, vi *d) {
    *a = vi_load_i8(p), *b = vi_load_i8(p + 16), *c = vi_load_i8(p + 32), *d = vi_load_i8(p + 48);
}
static inline void vi_widen_u8(const uint8_t *p, vi *a, vi *b, vi *c, vi *d) {
    *a = vi_load_u8(p), *b = vi_load_u8(p + 16), *c = vi_load_u8(p + 32), *d = vi_load_u8(p + 48);
}
static inline void vi_narrow_16(void *p, vi a, vi b) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(a));
    _mm256_storeu_si256((__m256i *)p + 1, _mm512_cvtepi32_epi16(b));
}
static inline void vi_narrow_8(void *p, vi a, vi b, vi c, vi d) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a));
    _mm_storeu_si128((__m128i *)p + 1, _mm512_cvtepi32_epi8(b));
    _mm_storeu_si128((__m128i *)p + 2, _mm512_cvtepi32_epi8(c));
    _mm_storeu_si128((__m128i *)p + 3, _mm512_cvtepi32_epi8(d));
}

static inline vf vf_load_bf16(const uint16_t *p) { return vi_as_vf(_mm512_slli_epi32(vi_load_u16(p), 16)); }
static inline vf vf_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline void vf_store_f16(uint16_t *p, vf v) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline void vf_store_bf16(uint16_t *p, vf v) {
    vi bits = vf_as_vi(v);
    vi top = _mm512_srli_epi32(bits, 16);
    vi odd = vi_and(top, vi_set1(1));
    vi rounded = _mm512_srli_epi32(vi_add(bits, vi_add(odd, vi_set1(0x7fff))), 16);
    vm is_nan = vi_gt(vi_and(bits, vi_set1(INT32_MAX)), vi_set1(0x7f800000));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(vi_select(is_nan, vi_or(top, vi_set1(0x40)), rounded)));
}

#endif
