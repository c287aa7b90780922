/* gemm_words__neon.c - stores tiles of integer sums as 16-bit numbers with NEON, eight at a time, and tiles with
 * operands of 16 bits. Equals ln_requant_store of kernel/common/requant.h, and the map of a residual, bit by bit. */
#include "kernels_arm/gemm/gemm_words__neon.h"

#include <string.h>

#define WORDS_INLINE static inline __attribute__((always_inline))

/* How a tile is stored. The fields are constants where this is inlined. */
typedef struct form {
    bool rounded; /* the sums are f32 (ln_requant.rounded) */
    bool divided; /* the result has its own scale (ln_quantized_sum) */
    int other, y; /* dtypes of the residual (LINNET_NONE: there is none) and of the stored numbers */
} form;

/* The numbers by which the sums of a tile are converted; copies, so the compiler knows that no store changes them. */
typedef struct words {
    ln_quantized_sum sum;
    int32_t y_zero;
} words;

WORDS_INLINE int64_t size_of(int dtype) {
    return dtype == LINNET_NONE ? 0 : dtype == LINNET_F32 ? 4 : dtype == LINNET_I16 ? 2 : 1;
}

WORDS_INLINE float32x4_t product_of(const form f, const int32_t *sums, float32x4_t scale) {
    if (f.rounded) return vmulq_f32(vld1q_f32((const float *)(const void *)sums), scale);
    return vmulq_f32(vcvtq_f32_s32(vld1q_s32(sums)), scale);
}

/* Returns 4 numbers of the residual as f32. */
WORDS_INLINE float32x4_t residual_of(const form f, const words *w, const char *at) {
    int16x4_t v;
    if (f.other == LINNET_F32) return vld1q_f32((const float *)(const void *)at);
    if (f.other == LINNET_I16) {
        v = vld1_s16((const int16_t *)(const void *)at);
    } else {
        uint32_t four;
        memcpy(&four, at, sizeof four);
        const uint8x8_t bytes = vreinterpret_u8_u32(vdup_n_u32(four));
        v = w->sum.dtype == LINNET_I8 ? vget_low_s16(vmovl_s8(vreinterpret_s8_u8(bytes)))
                                      : vreinterpret_s16_u16(vget_low_u16(vmovl_u8(bytes)));
    }
    return vmulq_n_f32(vcvtq_f32_s32(vsubq_s32(vmovl_s16(v), vdupq_n_s32(w->sum.zero))), w->sum.scale);
}

/* Returns four results. */
WORDS_INLINE int32x4_t result_of(const form f, const words *w, const int32_t *sums, float32x4_t scale,
                                 const char *residual) {
    float32x4_t v = product_of(f, sums, scale);
    if (f.other != LINNET_NONE) v = vaddq_f32(v, residual_of(f, w, residual));
    return f.divided ? ln_gemm_quantized(&w->sum, v) : vqaddq_s32(vcvtnq_s32_f32(v), vdupq_n_s32(w->y_zero));
}

/* Returns eight results as 16 bits. Saturation replaces the clamp of numbers that are only requantized. Otherwise the
 * limits keep the sum with the zero point in range, so that its lowest bits are enough. */
WORDS_INLINE int16x8_t narrowed(const form f, const words *w, int32x4_t low, int32x4_t high) {
    if (!f.divided) return vqmovn_high_s32(vqmovn_s32(low), high);
    const int16x8_t v = vuzp1q_s16(vreinterpretq_s16_s32(low), vreinterpretq_s16_s32(high));
    return vaddq_s16(v, vdupq_n_s16((int16_t)w->y_zero));
}

/* Stores 8 columns of each row. */
WORDS_INLINE void store_eight(const form f, const words *all, const float *scales, const int32_t *sums, int64_t rows,
                              int64_t width, const char *residual, char *y, int64_t stride) {
    const words w = *all;
    const float32x4_t scale0 = vld1q_f32(scales), scale1 = vld1q_f32(scales + 4);
    const int64_t other_stride = stride / size_of(f.y) * size_of(f.other);
    for (; rows > 0; rows--, sums += width, y += stride) {
        const int32x4_t v0 = result_of(f, &w, sums, scale0, residual);
        const int32x4_t v1 = result_of(f, &w, sums + 4, scale1, residual + 4 * size_of(f.other));
        const int16x8_t v = narrowed(f, &w, v0, v1);
        if (f.y == LINNET_I16)
            vst1q_s16((int16_t *)(void *)y, v);
        else
            vst1_s8((int8_t *)y, vmovn_s16(v));
        if (f.other != LINNET_NONE) residual += other_stride;
    }
}

WORDS_INLINE void store_tile(const form f, const words *w, const float *scales, const int32_t *sums, int64_t rows,
                             int64_t width, int64_t n, const char *residual, char *y, int64_t stride) {
    const int64_t size = size_of(f.y), other = size_of(f.other);
    int64_t at = 0;
    for (; at + 8 <= n; at += 8)
        store_eight(f, w, scales + at, sums + at, rows, width, residual + at * other, y + at * size, stride);
    for (; at < n && rows > 0; rows--, sums += width, y += stride) { /* the last columns */
        char few[32] = {0}, results[16];
        if (f.other != LINNET_NONE) {
            memcpy(few, residual + at * other, (size_t)((n - at) * other));
            residual += stride / size * other;
        }
        store_eight(f, w, scales + at, sums + at, 1, 0, few, results, 0);
        memcpy(y + at * size, results, (size_t)((n - at) * size));
    }
}

bool ln_gemm_store_words_neon(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows, int64_t width,
                              int64_t n, void *y, int64_t y_stride) {
    if (r->output_dtype != LINNET_I16 || r->mode != LN_REQUANT_FLOAT_RNE) return false;
    const words w = {.y_zero = r->y_zero};
    store_tile((form){r->rounded, false, LINNET_NONE, LINNET_I16}, &w, r->scale + channel, sums, rows, width, n, y, y,
               y_stride);
    return true;
}

#define STORE(ROUNDED, OTHER, Y)                                                                                       \
    store_tile((form){ROUNDED, true, OTHER, Y}, &w, r->scale + channel, sums, rows, width, n, from, y, y_stride)

void ln_gemm_sum_words_neon(const ln_requant *r, const ln_quantized_sum *sum, int64_t channel, const int32_t *sums,
                            int64_t rows, int64_t width, int64_t n, const void *residual, void *y, int64_t y_stride) {
    const words w = {.sum = *sum, .y_zero = sum->y_zero};
    const int other = residual == NULL ? LINNET_NONE : sum->dtype;
    const char *from = residual == NULL ? y : residual; /* not read if there is none */
    if (other == LINNET_NONE && sum->y_dtype == LINNET_I16 && !r->rounded)
        STORE(false, LINNET_NONE, LINNET_I16);
    else if (other == LINNET_NONE && sum->y_dtype == LINNET_I16)
        STORE(true, LINNET_NONE, LINNET_I16);
    else if (other == LINNET_I16 && sum->y_dtype == LINNET_I16 && !r->rounded)
        STORE(false, LINNET_I16, LINNET_I16);
    else
        STORE(r->rounded, other, sum->y_dtype);
}

/* Rounds n sums, a multiple of 8. The detour over f64 rounds once, because these sums have at most 53 bits. */
static void round_sums(const int64_t *sum, float *y, int64_t n) {
    for (; n > 0; n -= 8, sum += 8, y += 8) {
        const int64x2x4_t s = vld1q_s64_x4(sum);
        const float32x2_t first = vcvt_f32_f64(vcvtq_f64_s64(s.val[0])), third = vcvt_f32_f64(vcvtq_f64_s64(s.val[2]));
        const float32x4x2_t v = {
            {vcvt_high_f32_f64(first, vcvtq_f64_s64(s.val[1])), vcvt_high_f32_f64(third, vcvtq_f64_s64(s.val[3]))}};
        vst1q_f32_x2(y, v);
    }
}

void ln_gemm_store_wide_neon(const ln_gemm_tile *t, const int64_t *sum, int64_t rows, int64_t width) {
    for (int64_t i = 0; i < rows; i++, sum += width) {
        if (t->rounded)
            round_sums(sum, (float *)t->c + i * t->ldc, width);
        else
            memcpy((int64_t *)t->c + i * t->ldc, sum, (size_t)t->columns * sizeof *sum);
    }
}
