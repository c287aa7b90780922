/* gemm_tile__avx512vnni.c - stores tiles of integer sums with AVX-512, four vectors at a time, which become 64 bytes.
 * Equals ln_requant_store of kernel/common/requant.h bit by bit. */
#include "kernels_x86/gemm/gemm_tile.h"

#include <immintrin.h>

#define TILE_INLINE static inline __attribute__((always_inline))

/* From gemm_store.inc, compiled in gemm_s16__avx512vnni.c. */
extern void ln_gemm_store__avx512vnni(const ln_requant *r, int64_t channel, const void *sums, int64_t sums_stride,
                                      int64_t rows, int64_t n, void *y, int64_t y_stride);

/* Vector j of a group of four is in row row_of(j) and begins at column column_of(j). */
TILE_INLINE int64_t row_of(const int width, int j) { return width == 32 ? j / 2 : j; }
TILE_INLINE int64_t column_of(const int width, int j) { return width == 32 ? j % 2 * 16 : 0; }
TILE_INLINE __mmask16 columns_of(int64_t left) {
    return left >= 16 ? 0xFFFF : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
}

/* Adds the zero point to four vectors of 16 integers and narrows them, with saturation, to 64 bytes in their order. */
TILE_INLINE __m512i narrow(const bool u8, __m512i a, __m512i b, __m512i c, __m512i d, __m512i zero) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i ab = _mm512_adds_epi16(_mm512_packs_epi32(a, b), zero);
    const __m512i cd = _mm512_adds_epi16(_mm512_packs_epi32(c, d), zero);
    return _mm512_permutexvar_epi32(order, u8 ? _mm512_packus_epi16(ab, cd) : _mm512_packs_epi16(ab, cd));
}

/* Stores 64 bytes as 2 rows of 32 or 4 of 16, of which `rows` and n columns are stored. */
TILE_INLINE void store_group(const int width, __m512i v, int64_t rows, int64_t n, char *y, int64_t stride) {
    if (width == 32) {
        const __m256i first = _mm512_castsi512_si256(v), second = _mm512_extracti64x4_epi64(v, 1);
        if (n == 32) {
            _mm256_storeu_si256((__m256i *)(void *)y, first);
            if (rows > 1) _mm256_storeu_si256((__m256i *)(void *)(y + stride), second);
            return;
        }
        const __mmask32 mask = (__mmask32)(((uint64_t)1 << n) - 1);
        _mm256_mask_storeu_epi8(y, mask, first);
        if (rows > 1) _mm256_mask_storeu_epi8(y + stride, mask, second);
        return;
    }
    const __mmask16 mask = columns_of(n);
    _mm_mask_storeu_epi8(y, mask, _mm512_castsi512_si128(v));
    if (rows > 1) _mm_mask_storeu_epi8(y + stride, mask, _mm512_extracti32x4_epi32(v, 1));
    if (rows > 2) _mm_mask_storeu_epi8(y + 2 * stride, mask, _mm512_extracti32x4_epi32(v, 2));
    if (rows > 3) _mm_mask_storeu_epi8(y + 3 * stride, mask, _mm512_extracti32x4_epi32(v, 3));
}

/* The sums of vector j as f32, times their scales. Rows behind the last one are that one. */
TILE_INLINE __m512 scaled(const int width, const int32_t *sums, int j, int64_t rows, const __m512 *scale) {
    const int64_t row = ln_min(row_of(width, j), rows - 1), column = column_of(width, j);
    const __m512i v = _mm512_loadu_si512(sums + row * width + column);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(v), scale[column / 16]);
}

/* Only the upper limit is needed: what is below the range of an integer becomes the least integer, which saturates. */
TILE_INLINE void store_bytes(const int width, const bool u8, const ln_requant *r, int64_t channel, const int32_t *sums,
                             int64_t rows, int64_t n, char *y, int64_t stride) {
    const int64_t step = 64 / width;
    const __m512 most = _mm512_set1_ps((float)(r->high - r->y_zero));
    const __m512i zero = _mm512_set1_epi16((int16_t)r->y_zero);
    const float *from = r->scale + channel;
    const __m512 scale[2] = {_mm512_loadu_ps(from), width == 32 ? _mm512_loadu_ps(from + 16) : _mm512_setzero_ps()};
    for (; rows > 0; rows -= step, sums += 64, y += step * stride) {
        __m512i v[4];
        LN_UNROLL
        for (int j = 0; j < 4; j++)
            v[j] = _mm512_cvtps_epi32(_mm512_min_ps(scaled(width, sums, j, rows, scale), most));
        store_group(width, narrow(u8, v[0], v[1], v[2], v[3], zero), rows, n, y, stride);
    }
}

static void store_bytes_of(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows, int64_t width,
                           int64_t n, char *y, int64_t stride) {
    const bool u8 = r->output_dtype == LINNET_U8;
    if (width == 32 && u8)
        store_bytes(32, true, r, channel, sums, rows, n, y, stride);
    else if (width == 32)
        store_bytes(32, false, r, channel, sums, rows, n, y, stride);
    else if (u8)
        store_bytes(16, true, r, channel, sums, rows, n, y, stride);
    else
        store_bytes(16, false, r, channel, sums, rows, n, y, stride);
}

/* f32 results. */
static void store_floats(const float *from, const int32_t *sums, int64_t rows, int64_t width, int64_t n, char *y,
                         int64_t stride) {
    for (int64_t at = 0; at < n; at += 16) {
        const __m512 scale = _mm512_loadu_ps(from + at);
        const __mmask16 mask = columns_of(n - at);
        for (int64_t i = 0; i < rows; i++)
            _mm512_mask_storeu_ps(y + i * stride + at * 4, mask,
                                  _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(sums + i * width + at)), scale));
    }
}

void ln_gemm_store_tile__avx512vnni(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows,
                                    int64_t width, int64_t n, void *y, int64_t y_stride) {
    const bool bytes = r->output_dtype == LINNET_I8 || r->output_dtype == LINNET_U8;
    if (bytes && r->mode == LN_REQUANT_FLOAT_RNE)
        store_bytes_of(r, channel, sums, rows, width, n, y, y_stride);
    else if (r->output_dtype == LINNET_F32)
        store_floats(r->scale + channel, sums, rows, width, n, y, y_stride);
    else
        ln_gemm_store__avx512vnni(r, channel, sums, width * (int64_t)sizeof *sums, rows, n, y, y_stride);
}
