/* gemm_store__neon.c - converts integer sums to stored values with NEON: rows, eight sums at a time, or a tile.
 * Equals ln_requant_store of kernel/common/requant.h bit by bit, which also handles the rest of a row. */
#include "kernels_arm/gemm/gemm_store__neon.h"

#include "fast/gemm/gemm_driver.h"
#include "fast/gemm/gemm_driver_pack.h"
#include "kernels_arm/gemm/gemm_words__neon.h"

#include <arm_neon.h>
#include <string.h>

static inline int32x4_t fixed_double(int32x4_t x, int32x4_t fixed, int32x4_t shift) {
    int32x4_t zero = vdupq_n_s32(0), right = vminq_s32(shift, zero);
    /* vqrdmulh is floor((x * fixed + 2^30) / 2^31), as is SaturatingRoundingDoublingHighMul. */
    x = vqrdmulhq_s32(vshlq_s32(x, vmaxq_s32(shift, zero)), fixed);
    int32x4_t mask = vsubq_s32(vshlq_s32(vdupq_n_s32(1), vnegq_s32(right)), vdupq_n_s32(1));
    int32x4_t negative = vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(x), 31));
    int32x4_t half = vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(mask), 1));
    uint32x4_t up = vcgtq_s32(vandq_s32(x, mask), vaddq_s32(half, negative));
    return vsubq_s32(vshlq_s32(x, right), vreinterpretq_s32_u32(up));
}

static inline int32x4_t fixed_single(int32x4_t x, int32x4_t fixed, int32x4_t shift) {
    int32x4_t left = vsubq_s32(shift, vdupq_n_s32(31)); /* negative: shifts right and rounds half up */
    int64x2_t low = vrshlq_s64(vmull_s32(vget_low_s32(x), vget_low_s32(fixed)), vmovl_s32(vget_low_s32(left)));
    int64x2_t high = vrshlq_s64(vmull_high_s32(x, fixed), vmovl_high_s32(left));
    return vcombine_s32(vqmovn_s64(low), vqmovn_s64(high));
}

static inline float32x4_t load_sums(const ln_requant *r, const void *sums, int64_t i) {
    if (r->low_at != 0) { /* the sums of the two parts are joined in f64, which is exact, and rounded once */
        const int32x4_t high = vld1q_s32((const int32_t *)sums + i);
        const int32x4_t low = vld1q_s32((const int32_t *)(const void *)((const char *)sums + r->low_at) + i);
        const int64x2_t first = vaddw_s32(vshll_n_s32(vget_low_s32(high), 8), vget_low_s32(low));
        return vcvt_high_f32_f64(vcvt_f32_f64(vcvtq_f64_s64(first)),
                                 vcvtq_f64_s64(vaddw_high_s32(vshll_high_n_s32(high, 8), low)));
    }
    if (!r->wide) return vcvtq_f32_s32(vld1q_s32((const int32_t *)sums + i));
    float v[4];
    for (int j = 0; j < 4; j++) /* rounds once; f64 vectors would round twice */
        v[j] = (float)((const int64_t *)sums)[i + j];
    return vld1q_f32(v);
}

static inline int32x4_t requantize(const ln_requant *r, int64_t channel, const void *sums, int64_t i) {
    if (r->mode == LN_REQUANT_FLOAT_RNE) {
        float32x4_t v = vmulq_f32(load_sums(r, sums, i), vld1q_f32(r->scale + channel + i));
        v = vmaxq_f32(v, vdupq_n_f32((float)(r->low - r->y_zero)));
        v = vminq_f32(v, vdupq_n_f32((float)(r->high - r->y_zero)));
        return vaddq_s32(vcvtnq_s32_f32(v), vdupq_n_s32(r->y_zero));
    }
    int32x4_t x = vld1q_s32((const int32_t *)sums + i);
    int32x4_t fixed = vld1q_s32(r->fixed + channel + i), shift = vld1q_s32(r->shift + channel + i);
    x = r->mode == LN_REQUANT_TFLITE ? fixed_double(x, fixed, shift) : fixed_single(x, fixed, shift);
    x = vmaxq_s32(x, vdupq_n_s32(r->low - r->y_zero));
    x = vminq_s32(x, vdupq_n_s32(r->high - r->y_zero));
    return vaddq_s32(x, vdupq_n_s32(r->y_zero));
}

/* Rounds to 8 bits by float_rne. Every step saturates, which replaces the clamp because |zero| < 2^8. Returns how many
 * values were stored. */
static inline int64_t store_bytes(const float *scale, const int32_t *sums, int64_t n, int16x8_t zero, bool is_signed,
                                  uint8_t *y) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        int32x4_t low = vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(vld1q_s32(sums + i)), vld1q_f32(scale + i)));
        int32x4_t high = vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(vld1q_s32(sums + i + 4)), vld1q_f32(scale + i + 4)));
        int16x8_t v = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(low), high), zero);
        vst1_u8(y + i, is_signed ? vreinterpret_u8_s8(vqmovn_s16(v)) : vqmovun_s16(v));
    }
    return i;
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

enum { TFLITE_RIGHT = 16 }; /* a mode of its own for LN_REQUANT_TFLITE if all four channels are shifted to the right */

/* The constants of four channels. */
typedef struct factors {
    float32x4_t scale;
    int32x4_t fixed, left, right;
} factors;

static inline __attribute__((always_inline)) factors factors_of(const ln_requant *r, int mode, int64_t channel) {
    factors f = {0};
    if (mode == LN_REQUANT_FLOAT_RNE) {
        f.scale = vld1q_f32(r->scale + channel);
    } else {
        const int32x4_t shift = vld1q_s32(r->shift + channel);
        f.fixed = vld1q_s32(r->fixed + channel);
        f.left = mode == LN_REQUANT_TFLITE ? vmaxq_s32(shift, vdupq_n_s32(0)) : shift;
        f.right = vminq_s32(shift, vdupq_n_s32(0));
    }
    return f;
}

/* Returns the result before the zero point is added and the range is applied. The last instruction rounds half up. -1
 * is added to negative numbers before it, so that halves are rounded away from zero. This cannot overflow, because a
 * factor is less than 1. */
static inline __attribute__((always_inline)) int32x4_t scaled(int32x4_t x, const factors *f, int mode) {
    if (mode == LN_REQUANT_FLOAT_RNE) return vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(x), f->scale));
    if (mode == LN_REQUANT_TFLITE_SINGLE) return fixed_single(x, f->fixed, f->left);
    if (mode == TFLITE_RIGHT) {
        x = vqrdmulhq_s32(x, f->fixed);
        return vrshlq_s32(vsraq_n_s32(x, x, 31), f->right);
    }
    x = vqrdmulhq_s32(vshlq_s32(x, f->left), f->fixed);
    return vrshlq_s32(vsraq_n_s32(x, vandq_s32(x, f->right), 31), f->right);
}

/* Stores the first n < 16 bytes. */
static inline void store_few(uint8_t *y, uint8x16_t v, int64_t n) {
    if (n & 8) {
        vst1_u8(y, vget_low_u8(v));
        y += 8, v = vextq_u8(v, v, 8);
    }
    if (n & 4) {
        const uint32_t four = vgetq_lane_u32(vreinterpretq_u32_u8(v), 0);
        memcpy(y, &four, sizeof four);
        y += 4, v = vextq_u8(v, v, 4);
    }
    if (n & 2) {
        const uint16_t two = vgetq_lane_u16(vreinterpretq_u16_u8(v), 0);
        memcpy(y, &two, sizeof two);
        y += 2, v = vextq_u8(v, v, 2);
    }
    if (n & 1) *y = vgetq_lane_u8(v, 0);
}

/* Stores whole rows of 16 (or 8) results as bytes. Every step saturates, which replaces the clamp because |zero| < 2^8.
 * u8 results are i8 results with the highest bit flipped. */
static inline __attribute__((always_inline)) void tile_bytes(const ln_requant *r, const int mode, int64_t channel,
                                                             const int32_t *sums, int64_t rows, const int width,
                                                             uint8_t *y, int64_t y_stride) {
    const int turn = r->output_dtype == LINNET_I8 ? 0 : 128;
    const int16x8_t zero = vdupq_n_s16((int16_t)(r->y_zero - turn));
    const uint8x16_t highest = vdupq_n_u8((uint8_t)turn);
    const factors f0 = factors_of(r, mode, channel), f1 = factors_of(r, mode, channel + 4);
    if (width == 8) {
        for (; rows > 0; rows--, sums += 8, y += y_stride) {
            const int32x4_t v0 = scaled(vld1q_s32(sums), &f0, mode), v1 = scaled(vld1q_s32(sums + 4), &f1, mode);
            const int16x8_t low = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(v0), v1), zero);
            vst1_u8(y, veor_u8(vreinterpret_u8_s8(vqmovn_s16(low)), vget_low_u8(highest)));
        }
        return;
    }
    const factors f2 = factors_of(r, mode, channel + 8), f3 = factors_of(r, mode, channel + 12);
    for (; rows > 0; rows--, sums += 16, y += y_stride) {
        const int32x4_t v0 = scaled(vld1q_s32(sums), &f0, mode), v1 = scaled(vld1q_s32(sums + 4), &f1, mode);
        const int32x4_t v2 = scaled(vld1q_s32(sums + 8), &f2, mode), v3 = scaled(vld1q_s32(sums + 12), &f3, mode);
        const int16x8_t low = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(v0), v1), zero);
        const int16x8_t high = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(v2), v3), zero);
        vst1q_u8(y, veorq_u8(vreinterpretq_u8_s8(vqmovn_high_s16(vqmovn_s16(low), high)), highest));
    }
}

/* Tells whether 16 channels are shifted to the right. */
static bool shifts_right(const int32_t *shift) {
    const int32x4_t a = vmaxq_s32(vld1q_s32(shift), vld1q_s32(shift + 4));
    return vmaxvq_s32(vmaxq_s32(a, vmaxq_s32(vld1q_s32(shift + 8), vld1q_s32(shift + 12)))) < 0;
}

static void store_bytes_of(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows, int64_t width,
                           uint8_t *y, int64_t y_stride) {
    if (r->mode == LN_REQUANT_TFLITE && width == 16 && shifts_right(r->shift + channel))
        tile_bytes(r, TFLITE_RIGHT, channel, sums, rows, 16, y, y_stride);
    else if (r->mode == LN_REQUANT_TFLITE && width == 16)
        tile_bytes(r, LN_REQUANT_TFLITE, channel, sums, rows, 16, y, y_stride);
    else if (r->mode == LN_REQUANT_TFLITE)
        tile_bytes(r, LN_REQUANT_TFLITE, channel, sums, rows, 8, y, y_stride);
    else if (r->mode == LN_REQUANT_TFLITE_SINGLE && width == 16)
        tile_bytes(r, LN_REQUANT_TFLITE_SINGLE, channel, sums, rows, 16, y, y_stride);
    else if (r->mode == LN_REQUANT_TFLITE_SINGLE)
        tile_bytes(r, LN_REQUANT_TFLITE_SINGLE, channel, sums, rows, 8, y, y_stride);
    else if (width == 16)
        tile_bytes(r, LN_REQUANT_FLOAT_RNE, channel, sums, rows, 16, y, y_stride);
    else
        tile_bytes(r, LN_REQUANT_FLOAT_RNE, channel, sums, rows, 8, y, y_stride);
}

/* Stores n bytes, a multiple of 16. */
static inline __attribute__((always_inline)) void row_bytes(const ln_requant *r, const int mode, int64_t channel,
                                                            const int32_t *sums, int64_t n, uint8_t *y) {
    for (int64_t i = 0; i < n; i += 16) tile_bytes(r, mode, channel + i, sums + i, 1, 16, y + i, 0);
}

static void row_bytes_of(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t n, uint8_t *y) {
    if (r->mode == LN_REQUANT_TFLITE)
        row_bytes(r, LN_REQUANT_TFLITE, channel, sums, n, y);
    else if (r->mode == LN_REQUANT_TFLITE_SINGLE)
        row_bytes(r, LN_REQUANT_TFLITE_SINGLE, channel, sums, n, y);
    else
        row_bytes(r, LN_REQUANT_FLOAT_RNE, channel, sums, n, y);
}

static inline void store_row(const ln_requant *r, int64_t channel, const void *sums, int64_t n, void *y) {
    int dtype = r->output_dtype;
    int64_t i = 0;
    bool stored = dtype == LINNET_I8 || dtype == LINNET_U8 || dtype == LINNET_I16;
    if (dtype == LINNET_F32) {
        for (; i + 4 <= n; i += 4)
            vst1q_f32((float *)y + i, vmulq_f32(load_sums(r, sums, i), vld1q_f32(r->scale + channel + i)));
    } else if (stored && dtype != LINNET_I16 && !r->wide && n >= 16) {
        i = n & ~(int64_t)15;
        row_bytes_of(r, channel, sums, i, y);
    }
    if (stored && dtype != LINNET_I16 && r->mode == LN_REQUANT_FLOAT_RNE && !r->wide) {
        int16x8_t zero = vdupq_n_s16((int16_t)r->y_zero);
        const int32_t *rest = (const int32_t *)sums + i;
        i += dtype == LINNET_I8 ? store_bytes(r->scale + channel + i, rest, n - i, zero, true, (uint8_t *)y + i)
                                : store_bytes(r->scale + channel + i, rest, n - i, zero, false, (uint8_t *)y + i);
    } else if (stored && (r->mode == LN_REQUANT_FLOAT_RNE || !r->wide)) {
        for (; i + 8 <= n; i += 8) {
            int16x8_t v = vcombine_s16(vqmovn_s32(requantize(r, channel, sums, i)),
                                       vqmovn_s32(requantize(r, channel, sums, i + 4)));
            if (dtype == LINNET_I16)
                vst1q_s16((int16_t *)y + i, v);
            else if (dtype == LINNET_I8)
                vst1_s8((int8_t *)y + i, vqmovn_s16(v));
            else
                vst1_u8((uint8_t *)y + i, vqmovun_s16(v));
        }
    }
    if (i == n) return;
    size_t sum_size = r->wide && r->low_at == 0 ? sizeof(int64_t) : sizeof(int32_t);
    ln_gemm_store_row(r, channel + i, (const char *)sums + (size_t)i * sum_size, n - i,
                      (char *)y + i * (int64_t)ln_dtype_size(dtype));
}

void ln_gemm_store_neon(const ln_requant *r, int64_t channel, const void *sums, int64_t sums_stride, int64_t rows,
                        int64_t n, void *y, int64_t y_stride) {
    for (int64_t i = 0; i < rows; i++)
        store_row(r, channel, (const char *)sums + i * sums_stride, n, (char *)y + i * y_stride);
}

/* Stores whole rows of f32. */
static void tile_floats(const float *scale, const int32_t *sums, int64_t rows, int64_t width, char *y, int64_t stride) {
    for (int64_t at = 0; at < width; at += 8) {
        const float32x4_t scale0 = vld1q_f32(scale + at), scale1 = vld1q_f32(scale + at + 4);
        const int32_t *from = sums + at;
        char *to = y + at * (int64_t)sizeof *scale;
        for (int64_t i = 0; i < rows; i++, from += width, to += stride) {
            vst1q_f32((float *)(void *)to, vmulq_f32(vcvtq_f32_s32(vld1q_s32(from)), scale0));
            vst1q_f32((float *)(void *)to + 4, vmulq_f32(vcvtq_f32_s32(vld1q_s32(from + 4)), scale1));
        }
    }
}

void ln_gemm_store_tile_neon(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows, int64_t width,
                             int64_t n, void *y, int64_t y_stride) {
    enum { MOST_WIDTH = 16 };
    uint8_t row[MOST_WIDTH], *to = y;
    if (ln_gemm_store_words_neon(r, channel, sums, rows, width, n, y, y_stride)) return;
    if (r->output_dtype == LINNET_F32 && n == width && !r->rounded && width >= 8) {
        tile_floats(r->scale + channel, sums, rows, width, y, y_stride);
    } else if ((r->output_dtype != LINNET_I8 && r->output_dtype != LINNET_U8) || width < 8) {
        ln_gemm_store_neon(r, channel, sums, width * (int64_t)sizeof *sums, rows, n, y, y_stride);
    } else if (n == width) {
        store_bytes_of(r, channel, sums, rows, width, y, y_stride);
    } else {
        for (; rows > 0; rows--, sums += width, to += y_stride) {
            store_bytes_of(r, channel, sums, 1, width, row, MOST_WIDTH);
            store_few(to, vld1q_u8(row), n);
        }
    }
}

/* ---- tiles with a residual --------------------------------------------------------------------------------------- */

/* Adds four numbers to four sums and quantizes the results, without the zero point. */
static inline __attribute__((always_inline)) int32x4_t summed(const ln_quantized_sum *s, const int32_t *sums,
                                                              float32x4_t scale, float32x4_t added) {
    return ln_gemm_quantized(s, vaddq_f32(vmulq_f32(vcvtq_f32_s32(vld1q_s32(sums)), scale), added));
}

/* Adds a residual to rows of 8 sums, which are `width` apart, and stores bytes. The limits keep the sum in range, so
 * that nothing saturates. */
static inline __attribute__((always_inline)) void sum_bytes(const bool floats, const float *scale,
                                                            const ln_quantized_sum *all, const int32_t *sums,
                                                            int64_t rows, int64_t width, const uint8_t *residual,
                                                            uint8_t *y, int64_t stride) {
    const ln_quantized_sum s = *all; /* a copy, so that the compiler knows that no store changes it */
    const float32x4_t scale0 = vld1q_f32(scale), scale1 = vld1q_f32(scale + 4);
    const uint8x8_t turn = vdup_n_u8(s.dtype == LINNET_I8 ? 0 : 128); /* u8 to i8 */
    const int16x8_t zero = vdupq_n_s16((int16_t)(s.zero - (s.dtype == LINNET_I8 ? 0 : 128)));
    const int16x8_t y_zero = vdupq_n_s16((int16_t)s.y_zero);
    for (; rows > 0; rows--, sums += width, residual += stride * (floats ? 4 : 1), y += stride) {
        float32x4_t added0, added1;
        if (floats) {
            added0 = vreinterpretq_f32_u8(vld1q_u8(residual)), added1 = vreinterpretq_f32_u8(vld1q_u8(residual + 16));
        } else {
            const int16x8_t v = vsubq_s16(vmovl_s8(vreinterpret_s8_u8(veor_u8(vld1_u8(residual), turn))), zero);
            added0 = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), s.scale);
            added1 = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(v))), s.scale);
        }
        const int32x4_t v0 = summed(&s, sums, scale0, added0), v1 = summed(&s, sums + 4, scale1, added1);
        const int16x8_t v = vaddq_s16(vuzp1q_s16(vreinterpretq_s16_s32(v0), vreinterpretq_s16_s32(v1)), y_zero);
        vst1_u8(y, vreinterpret_u8_s8(vmovn_s16(v)));
    }
}

static void sum_bytes_of(const float *scale, const ln_quantized_sum *all, const int32_t *sums, int64_t rows,
                         int64_t width, const uint8_t *residual, uint8_t *y, int64_t stride) {
    if (all->dtype == LINNET_F32)
        sum_bytes(true, scale, all, sums, rows, width, residual, y, stride);
    else
        sum_bytes(false, scale, all, sums, rows, width, residual, y, stride);
}

void ln_gemm_store_sum_neon(const ln_requant *r, const ln_quantized_sum *sum, int64_t channel, const int32_t *sums,
                            int64_t rows, int64_t width, int64_t n, const void *residual, void *y, int64_t y_stride) {
    if (sum->words) {
        ln_gemm_sum_words_neon(r, sum, channel, sums, rows, width, n, residual, y, y_stride);
        return;
    }
    const int64_t size = sum->dtype == LINNET_F32 ? 4 : 1;
    const uint8_t *from = residual;
    uint8_t *to = y;
    int64_t at = 0;
    for (; at + 8 <= n; at += 8)
        sum_bytes_of(r->scale + channel + at, sum, sums + at, rows, width, from + at * size, to + at, y_stride);
    for (; rows > 0 && at < n; rows--, sums += width, from += y_stride * size, to += y_stride) {
        uint8_t few[32] = {0}, result[16] = {0};
        int32_t last[8] = {0};
        memcpy(few, from + at * size, (size_t)((n - at) * size));
        memcpy(last, sums + at, (size_t)(n - at) * sizeof *last);
        sum_bytes_of(r->scale + channel + at, sum, last, 1, 8, few, result, 0);
        store_few(to + at, vld1q_u8(result), n - at);
    }
}

/* ---- sums of rows of A ------------------------------------------------------------------------------------------- */

/* Returns the sum of n elements: i8 with `turn` 0, or u8 with `turn` 128. u8 elements are summed as i8 elements that
 * are smaller by 128, which is corrected at the end. */
static int32_t sum_of_bytes(const uint8_t *v, int64_t n, uint8_t turn) {
    const uint8x16_t highest = vdupq_n_u8(turn);
    int32x4_t four = vdupq_n_s32(0);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const int8x16_t bytes = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(v + i), highest));
        four = vpadalq_s16(four, vpaddlq_s8(bytes));
    }
    int32_t sum = vaddvq_s32(four);
    for (; i < n; i++) sum += (int8_t)(v[i] ^ turn);
    return sum + (int32_t)(uint32_t)(n * turn);
}

static void sums_of_rows(const void *const *a, int64_t taps, int64_t rows, int64_t kc, int32_t *sums, uint8_t turn) {
    for (int64_t i = 0; i < rows; i++) {
        uint32_t sum = 0;
        for (int64_t t = 0; t < taps; t++) sum += (uint32_t)sum_of_bytes(a[t * rows + i], kc, turn);
        sums[i] = (int32_t)sum;
    }
}

void ln_gemm_row_sums_i8_neon(const void *const *a, int64_t taps, int64_t rows, int64_t kc, int32_t *sums) {
    sums_of_rows(a, taps, rows, kc, sums, 0);
}

void ln_gemm_row_sums_u8_neon(const void *const *a, int64_t taps, int64_t rows, int64_t kc, int32_t *sums) {
    sums_of_rows(a, taps, rows, kc, sums, 128);
}

void ln_gemm_convert_bytes_neon(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    if (stride == 1)
        memcpy(dst, src, (size_t)n);
    else
        ln_gemm_convert_any(dst, src, stride, n, src_dtype, LINNET_U8);
}
