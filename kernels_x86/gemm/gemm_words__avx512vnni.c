/* gemm_words__avx512vnni.c - stores tiles of integer sums as 16-bit numbers with AVX-512, 16 at a time, and tiles with
 * operands of 16 bits. Equals ln_requant_store of kernel/common/requant.h, and the map of a residual, bit by bit. */
#include "kernels_x86/gemm/gemm_words__avx512vnni.h"
#include "kernels_x86/gemm/gemm_tile__avx512vnni.h"

#include <immintrin.h>

#define WORDS_INLINE static inline __attribute__((always_inline))

/* The numbers by which the sums of a tile are converted. The fields are copies, so the compiler knows that no store
 * changes them. */
typedef struct words {
    __m512 scale[2], low, high; /* low and high: limits of the results without the zero point */
    __m512 other, y_scale, y_inverse;
    __m512i zero, y_zero;
} words;

WORDS_INLINE __mmask16 first_columns(int64_t left) {
    return left >= 16 ? 0xFFFF : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
}

/* Returns 16 numbers of the residual as f32, before they are multiplied by the scale. */
WORDS_INLINE __m512 residual_numbers(const int dtype, const char *at, __mmask16 mask, __m512i zero) {
    __m512i v;
    if (dtype == LINNET_F32) return _mm512_maskz_loadu_ps(mask, at);
    if (dtype == LINNET_I16)
        v = _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(mask, at));
    else if (dtype == LINNET_I8)
        v = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, at));
    else
        v = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, at));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(v, zero));
}

WORDS_INLINE void store_integers(const int dtype, __m512i v, char *y, __mmask16 mask) {
    if (dtype == LINNET_I16)
        _mm256_mask_storeu_epi16(y, mask, _mm512_cvtepi32_epi16(v));
    else
        _mm_mask_storeu_epi8(y, mask, _mm512_cvtepi32_epi8(v));
}

/* Requantizes the sums, without a residual. */
WORDS_INLINE void store_tile_as(const int dtype, const words *w, const int32_t *sums, int64_t rows, int64_t width,
                                int64_t n, char *y, int64_t stride) {
    const int64_t size = dtype == LINNET_I16 ? 2 : 1;
    for (int64_t at = 0; at < n; at += 16) {
        const __mmask16 mask = first_columns(n - at);
        const __m512 scale = w->scale[at / 16];
        for (int64_t i = 0; i < rows; i++) {
            __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(sums + i * width + at)), scale);
            v = _mm512_min_ps(_mm512_max_ps(v, w->low), w->high);
            store_integers(dtype, _mm512_add_epi32(_mm512_cvtps_epi32(v), w->y_zero), y + i * stride + at * size, mask);
        }
    }
}

void ln_gemm_store_words__avx512vnni(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows,
                                     int64_t width, int64_t n, void *y, int64_t y_stride) {
    if (r->output_dtype != LINNET_I16 || r->mode != LN_REQUANT_FLOAT_RNE) {
        ln_gemm_store_tile__avx512vnni(r, channel, sums, rows, width, n, y, y_stride);
        return;
    }
    words w = {.y_zero = _mm512_set1_epi32(r->y_zero)};
    w.low = _mm512_set1_ps((float)(r->low - r->y_zero)), w.high = _mm512_set1_ps((float)(r->high - r->y_zero));
    w.scale[0] = _mm512_loadu_ps(r->scale + channel);
    w.scale[1] = n > 16 ? _mm512_loadu_ps(r->scale + channel + 16) : _mm512_setzero_ps();
    store_tile_as(LINNET_I16, &w, sums, rows, width, n, y, y_stride);
}

/* Returns v divided by the scale and rounded. The quotient equals that of a division, because the product with the
 * inverse is corrected twice (map/map_strip.inc.c). NaN becomes the lower limit. */
WORDS_INLINE __m512i quantized(const words *w, __m512 v) {
    v = _mm512_min_ps(_mm512_max_ps(v, w->low), w->high);
    __m512 q = _mm512_mul_ps(v, w->y_inverse);
    q = _mm512_fmadd_ps(_mm512_fnmadd_ps(q, w->y_scale, v), w->y_inverse, q);
    q = _mm512_fmadd_ps(_mm512_fnmadd_ps(q, w->y_scale, v), w->y_inverse, q);
    return _mm512_add_epi32(_mm512_cvtps_epi32(q), w->y_zero);
}

WORDS_INLINE void store_sum_as(const int dtype, const int other, const words *w, const int32_t *sums, int64_t rows,
                               int64_t width, int64_t n, const char *residual, char *y, int64_t stride) {
    const int64_t size = dtype == LINNET_I16 ? 2 : 1;
    const int64_t other_size = other == LINNET_F32 ? 4 : other == LINNET_I16 ? 2 : 1;
    const int64_t other_stride = stride / size * other_size;
    for (int64_t i = 0; i < rows; i++, sums += width, y += stride) {
        for (int64_t at = 0; at < n; at += 16) {
            const __mmask16 mask = first_columns(n - at);
            __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(sums + at)), w->scale[at / 16]);
            if (other != LINNET_NONE) {
                const __m512 added = residual_numbers(other, residual + at * other_size, mask, w->zero);
                v = _mm512_add_ps(v, other == LINNET_F32 ? added : _mm512_mul_ps(added, w->other));
            }
            store_integers(dtype, quantized(w, v), y + at * size, mask);
        }
        if (other != LINNET_NONE) residual += other_stride;
    }
}

static __attribute__((noinline)) void sum_to_words(int other, const words *w, const int32_t *sums, int64_t rows,
                                                   int64_t width, int64_t n, const char *residual, char *y,
                                                   int64_t stride) {
    if (other == LINNET_NONE)
        store_sum_as(LINNET_I16, LINNET_NONE, w, sums, rows, width, n, residual, y, stride);
    else if (other == LINNET_I16)
        store_sum_as(LINNET_I16, LINNET_I16, w, sums, rows, width, n, residual, y, stride);
    else
        store_sum_as(LINNET_I16, other, w, sums, rows, width, n, residual, y, stride);
}

void ln_gemm_sum_words__avx512vnni(const ln_requant *r, const ln_quantized_sum *sum, int64_t channel,
                                   const int32_t *sums, int64_t rows, int64_t width, int64_t n, const void *residual,
                                   void *y, int64_t y_stride) {
    if (!sum->words) {
        ln_gemm_store_sum__avx512vnni(r, sum, channel, sums, rows, width, n, residual, y, y_stride);
        return;
    }
    words w = {.y_zero = _mm512_set1_epi32(sum->y_zero), .zero = _mm512_set1_epi32(sum->zero)};
    w.scale[0] = _mm512_loadu_ps(r->scale + channel);
    w.scale[1] = n > 16 ? _mm512_loadu_ps(r->scale + channel + 16) : _mm512_setzero_ps();
    w.low = _mm512_set1_ps(sum->low), w.high = _mm512_set1_ps(sum->high), w.other = _mm512_set1_ps(sum->scale);
    w.y_scale = _mm512_set1_ps(sum->y_scale), w.y_inverse = _mm512_set1_ps(sum->y_inverse);
    const int other = residual == NULL ? LINNET_NONE : sum->dtype;
    if (sum->y_dtype == LINNET_I16)
        sum_to_words(other, &w, sums, rows, width, n, residual, y, y_stride);
    else
        store_sum_as(LINNET_I8, other, &w, sums, rows, width, n, residual, y, y_stride);
}
