/* gemm_tile__avx2.c - stores tiles of integer sums with AVX2, four vectors at a time, which become 32 bytes.
 * Equals ln_requant_store of kernel/common/requant.h, and the map of a residual, bit by bit. */
#include "kernels_x86/gemm/gemm_tile__avx2.h"
#include "kernels_x86/gemm/gemm_store__avx2.h"

#include <immintrin.h>
#include <string.h>

#define TILE_INLINE static inline __attribute__((always_inline))

enum { LANES = 8, GROUP = 32 };

/* Vector j of a group of four is in row row_in(j) and begins at column column_in(j). */
TILE_INLINE int64_t row_in(const int width, int j) { return width == 16 ? j / 2 : j; }
TILE_INLINE int64_t column_in(const int width, int j) { return width == 16 ? j % 2 * LANES : 0; }

/* Adds the zero point to four vectors of 8 integers and narrows them, with saturation, to 32 bytes in their order. */
TILE_INLINE __m256i narrow_group(const __m256i *v, __m256i zero) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i ab = _mm256_adds_epi16(_mm256_packs_epi32(v[0], v[1]), zero);
    const __m256i cd = _mm256_adds_epi16(_mm256_packs_epi32(v[2], v[3]), zero);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(ab, cd), order);
}

/* Copies the few bytes of a part of a vector without a call of memcpy. */
TILE_INLINE void copy_part(char *to, const char *from, int64_t bytes) {
    if (bytes >= 16) {
        memcpy(to, from, 16);
        memcpy(to + bytes - 16, from + bytes - 16, 16);
    } else if (bytes >= 8) {
        memcpy(to, from, 8);
        memcpy(to + bytes - 8, from + bytes - 8, 8);
    } else if (bytes >= 4) {
        memcpy(to, from, 4);
        memcpy(to + bytes - 4, from + bytes - 4, 4);
    } else {
        for (int64_t i = 0; i < bytes; i++) to[i] = from[i];
    }
}

/* Stores 32 bytes as 2 rows of 16 or 4 of 8, of which `rows` and n columns are stored. */
TILE_INLINE void store_rows(const int width, __m256i v, int64_t rows, int64_t n, char *y, int64_t stride) {
    const __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
    if (width == 16 && n == 16 && rows > 1) {
        _mm_storeu_si128((__m128i *)(void *)y, low);
        _mm_storeu_si128((__m128i *)(void *)(y + stride), high);
        return;
    }
    char bytes[GROUP];
    _mm256_storeu_si256((__m256i *)(void *)bytes, v);
    for (int64_t i = 0; i < ln_min(rows, GROUP / width); i++)
        if (n == 8)
            memcpy(y + i * stride, bytes + i * width, 8);
        else
            copy_part(y + i * stride, bytes + i * width, n);
}

/* Returns the sums of vector j as f32, times their scales. Rows after the last row are replaced by the last row. */
TILE_INLINE __m256 scaled_sums(const int width, const int32_t *sums, int j, int64_t rows, const __m256 *scale) {
    const int64_t row = ln_min(row_in(width, j), rows - 1), column = column_in(width, j);
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(sums + row * width + column));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(v), scale[column / LANES]);
}

TILE_INLINE void load_scales(const int width, const float *from, __m256 *scale) {
    scale[0] = _mm256_loadu_ps(from);
    scale[1] = width == 16 ? _mm256_loadu_ps(from + LANES) : _mm256_setzero_ps();
}

/* Converts a tile to bytes. Only the upper limit must be applied to the floats: a float below the range of int32
 * becomes the least int32, and the later steps saturate it. */
TILE_INLINE void bytes_of_tile(const int width, const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows,
                               int64_t n, char *y, int64_t stride) {
    const int64_t step = GROUP / width;
    const __m256 most = _mm256_set1_ps((float)(r->high - r->y_zero));
    const int flip = r->output_dtype == LINNET_U8 ? 128 : 0; /* u8 is i8 with the top bit flipped */
    const __m256i zero = _mm256_set1_epi16((int16_t)(r->y_zero - flip)), sign = _mm256_set1_epi8((char)flip);
    __m256 scale[2];
    load_scales(width, r->scale + channel, scale);
    for (; rows > 0; rows -= step, sums += GROUP, y += step * stride) {
        __m256i v[4];
        if (rows >= step) { /* no row must be replaced */
            LN_UNROLL
            for (int j = 0; j < 4; j++)
                v[j] = _mm256_cvtps_epi32(_mm256_min_ps(scaled_sums(width, sums, j, step, scale), most));
        } else {
            LN_UNROLL
            for (int j = 0; j < 4; j++)
                v[j] = _mm256_cvtps_epi32(_mm256_min_ps(scaled_sums(width, sums, j, rows, scale), most));
        }
        store_rows(width, _mm256_xor_si256(narrow_group(v, zero), sign), rows, n, y, stride);
    }
}

void ln_gemm_store_tile__avx2(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows, int64_t width,
                              int64_t n, void *y, int64_t y_stride) {
    const bool bytes = r->output_dtype == LINNET_I8 || r->output_dtype == LINNET_U8;
    if (bytes && r->mode == LN_REQUANT_FLOAT_RNE && width == 16)
        bytes_of_tile(16, r, channel, sums, rows, n, y, y_stride);
    else if (bytes && r->mode == LN_REQUANT_FLOAT_RNE)
        bytes_of_tile(8, r, channel, sums, rows, n, y, y_stride);
    else
        ln_gemm_store__avx2(r, channel, sums, width * (int64_t)sizeof *sums, rows, n, y, y_stride);
}

/* ---- tiles with a residual, or with limits of their own --------------------------------------------------------- */

/* The numbers that are added to a tile, and how the tile is stored. The fields are copies, so the compiler knows that
 * no store changes them. */
typedef struct tile_sum {
    ln_quantized_sum s;
    const float *scale; /* of the sums, from the tile's first column on */
    __m256 low, high;   /* limits of the op's own result, without its zero point */
    int64_t size, other_size;
} tile_sum;

/* Returns `count` <= 8 numbers of the residual as f32, before they are multiplied by the scale. */
TILE_INLINE __m256 residual_of_tile(const int dtype, const char *at, int64_t count, int64_t size, __m256i zero) {
    char copy[LANES * 4] = {0};
    if (count < LANES) copy_part(copy, at, count * size), at = copy;
    if (dtype == LINNET_F32) return _mm256_loadu_ps((const float *)(const void *)at);
    __m256i v;
    if (dtype == LINNET_I16)
        v = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(const void *)at));
    else if (dtype == LINNET_I8)
        v = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)at));
    else
        v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)at));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(v, zero));
}

/* Returns the stored integers with their zero point, as the map computes them. */
TILE_INLINE __m256i sum_of_tile(const int other, const tile_sum *t, __m256 v, const char *residual, int64_t count) {
    const ln_quantized_sum *s = &t->s;
    if (s->tile != LINNET_F32) {
        const __m256 rounded = _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        v = _mm256_mul_ps(_mm256_min_ps(_mm256_max_ps(rounded, t->low), t->high), _mm256_set1_ps(s->tile_scale));
    }
    if (other != LINNET_NONE) {
        const __m256 added = residual_of_tile(other, residual, count, t->other_size, _mm256_set1_epi32(s->zero));
        v = _mm256_add_ps(v, other == LINNET_F32 ? added : _mm256_mul_ps(added, _mm256_set1_ps(s->scale)));
    }
    /* NaN becomes the lower limit. */
    v = _mm256_min_ps(_mm256_max_ps(v, _mm256_set1_ps(s->low)), _mm256_set1_ps(s->high));
    const __m256i q = _mm256_cvtps_epi32(_mm256_div_ps(v, _mm256_set1_ps(s->y_scale)));
    return _mm256_add_epi32(q, _mm256_set1_epi32(s->y_zero));
}

/* Returns `count` <= 8 stored integers of column `at` on, of 8 or 16 bits. */
TILE_INLINE __m128i words_of_tile(const int other, const tile_sum *t, const int32_t *sums, int64_t at, int64_t count,
                                  const char *residual) {
    const __m256i from = _mm256_loadu_si256((const __m256i *)(const void *)(sums + at));
    const __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(from), _mm256_loadu_ps(t->scale + at));
    const char *added = other == LINNET_NONE ? NULL : residual + at * t->other_size;
    const __m256i q = sum_of_tile(other, t, v, added, count);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    if (t->size != 1) return words;
    return t->s.y_dtype == LINNET_U8 ? _mm_packus_epi16(words, words) : _mm_packs_epi16(words, words);
}

TILE_INLINE void store_sums_as(const int other, const tile_sum *t, const int32_t *sums, int64_t rows, int64_t width,
                               int64_t n, const char *residual, char *y, int64_t stride) {
    const int64_t other_stride = stride / t->size * t->other_size;
    for (int64_t i = 0; i < rows; i++, sums += width, y += stride) {
        if (n >= LANES) {
            /* The last vector overlaps the first one. It is computed before the first one is stored, because the result
             * may be stored over the residual. */
            const int64_t last = n - LANES;
            const __m128i low = words_of_tile(other, t, sums, 0, LANES, residual);
            const __m128i high = last > 0 ? words_of_tile(other, t, sums, last, LANES, residual) : low;
            if (t->size == 1) {
                _mm_storel_epi64((__m128i *)(void *)y, low);
                _mm_storel_epi64((__m128i *)(void *)(y + last), high);
            } else {
                _mm_storeu_si128((__m128i *)(void *)y, low);
                _mm_storeu_si128((__m128i *)(void *)(y + last * 2), high);
            }
        } else {
            char copy[16];
            _mm_storeu_si128((__m128i *)(void *)copy, words_of_tile(other, t, sums, 0, n, residual));
            copy_part(y, copy, n * t->size);
        }
        if (other != LINNET_NONE) residual += other_stride;
    }
}

void ln_gemm_store_sum__avx2(const ln_requant *r, const ln_quantized_sum *sum, int64_t channel, const int32_t *sums,
                             int64_t rows, int64_t width, int64_t n, const void *residual, void *y, int64_t y_stride) {
    tile_sum t = {.s = *sum};
    t.scale = r->scale + channel;
    t.low = _mm256_set1_ps((float)(r->low - r->y_zero)), t.high = _mm256_set1_ps((float)(r->high - r->y_zero));
    t.size = sum->y_dtype == LINNET_I16 ? 2 : 1;
    t.other_size = sum->dtype == LINNET_F32 ? 4 : sum->dtype == LINNET_I16 ? 2 : 1;
    const int other = residual == NULL ? LINNET_NONE : sum->dtype;
    if (other == LINNET_NONE)
        store_sums_as(LINNET_NONE, &t, sums, rows, width, n, residual, y, y_stride);
    else if (other == LINNET_U8)
        store_sums_as(LINNET_U8, &t, sums, rows, width, n, residual, y, y_stride);
    else
        store_sums_as(other, &t, sums, rows, width, n, residual, y, y_stride);
}
