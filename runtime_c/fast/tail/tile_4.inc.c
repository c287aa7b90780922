/* tile_4.inc.c - transposes of one tile of elements of four bytes in registers: target[p][q] = source[q][p].
 * Strides are in bytes. Included by the copies and by kernels that pack matrices. Needs simd/simd.h. */
#ifndef LN_TILE_4_INC
#define LN_TILE_4_INC

#if defined(LN_SIMD_NEON)
#define LN_TILE_4 4
static inline void tile_4x4(const char *s, int64_t s_stride, char *t, int64_t t_stride) { /* 4 x 4 of 4 bytes */
    uint32x4_t a = vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)s));
    uint32x4_t b = vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)s + s_stride));
    uint32x4_t c = vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)s + 2 * s_stride));
    uint32x4_t d = vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)s + 3 * s_stride));
    uint64x2_t ab_even = vreinterpretq_u64_u32(vtrn1q_u32(a, b)), ab_odd = vreinterpretq_u64_u32(vtrn2q_u32(a, b));
    uint64x2_t cd_even = vreinterpretq_u64_u32(vtrn1q_u32(c, d)), cd_odd = vreinterpretq_u64_u32(vtrn2q_u32(c, d));
    vst1q_u8((uint8_t *)t, vreinterpretq_u8_u64(vtrn1q_u64(ab_even, cd_even)));
    vst1q_u8((uint8_t *)t + t_stride, vreinterpretq_u8_u64(vtrn1q_u64(ab_odd, cd_odd)));
    vst1q_u8((uint8_t *)t + 2 * t_stride, vreinterpretq_u8_u64(vtrn2q_u64(ab_even, cd_even)));
    vst1q_u8((uint8_t *)t + 3 * t_stride, vreinterpretq_u8_u64(vtrn2q_u64(ab_odd, cd_odd)));
}
static inline void tile_4(const char *s, int64_t s_stride, char *t, int64_t t_stride) {
    tile_4x4(s, s_stride, t, t_stride);
}
#else
static inline __m128i tile_row(const char *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
static inline void tile_put(char *p, __m128i v) { _mm_storeu_si128((__m128i *)(void *)p, v); }
static inline void tile_4x4(const char *s, int64_t s_stride, char *t, int64_t t_stride) { /* 4 x 4 of 4 bytes */
    __m128i a = tile_row(s), b = tile_row(s + s_stride);
    __m128i c = tile_row(s + 2 * s_stride), d = tile_row(s + 3 * s_stride);
    __m128i ab0 = _mm_unpacklo_epi32(a, b), ab1 = _mm_unpackhi_epi32(a, b);
    __m128i cd0 = _mm_unpacklo_epi32(c, d), cd1 = _mm_unpackhi_epi32(c, d);
    tile_put(t, _mm_unpacklo_epi64(ab0, cd0));
    tile_put(t + t_stride, _mm_unpackhi_epi64(ab0, cd0));
    tile_put(t + 2 * t_stride, _mm_unpacklo_epi64(ab1, cd1));
    tile_put(t + 3 * t_stride, _mm_unpackhi_epi64(ab1, cd1));
}
#if defined(LN_SIMD_SSE2)
#define LN_TILE_4 4
static inline void tile_4(const char *s, int64_t s_stride, char *t, int64_t t_stride) {
    tile_4x4(s, s_stride, t, t_stride);
}
#else
#define LN_TILE_4 8
static inline void tile_4(const char *s, int64_t s_stride, char *t, int64_t t_stride) { /* 8 x 8 of 4 bytes */
    __m256 r[8], u[8];
    LN_SIMD_UNROLL
    for (int k = 0; k < 4; k++) { /* puts row k beside row k + 4, so that no element has to move between the halves of a
                                     register */
        const char *p = s + k * s_stride, *q = s + (k + 4) * s_stride;
        r[k] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps((const float *)(const void *)p)),
                                    _mm_loadu_ps((const float *)(const void *)q), 1);
        r[k + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps((const float *)(const void *)(p + 16))),
                                        _mm_loadu_ps((const float *)(const void *)(q + 16)), 1);
    }
    LN_SIMD_UNROLL
    for (int h = 0; h < 8; h += 4) {
        u[h] = _mm256_unpacklo_ps(r[h], r[h + 1]);
        u[h + 1] = _mm256_unpackhi_ps(r[h], r[h + 1]);
        u[h + 2] = _mm256_unpacklo_ps(r[h + 2], r[h + 3]);
        u[h + 3] = _mm256_unpackhi_ps(r[h + 2], r[h + 3]);
        _mm256_storeu_ps((float *)(void *)(t + h * t_stride), _mm256_shuffle_ps(u[h], u[h + 2], 0x44));
        _mm256_storeu_ps((float *)(void *)(t + (h + 1) * t_stride), _mm256_shuffle_ps(u[h], u[h + 2], 0xee));
        _mm256_storeu_ps((float *)(void *)(t + (h + 2) * t_stride), _mm256_shuffle_ps(u[h + 1], u[h + 3], 0x44));
        _mm256_storeu_ps((float *)(void *)(t + (h + 3) * t_stride), _mm256_shuffle_ps(u[h + 1], u[h + 3], 0xee));
    }
}
#endif
#endif

#endif
