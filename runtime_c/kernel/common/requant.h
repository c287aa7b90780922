/* requant.h - converts exact integer accumulators to stored values, in the three requantization modes
 * (docs/numerics.md). ln_requant_prepare sets it up once per call. The inline functions define the result; vector code
 * must give the same result. */
#ifndef LN_REQUANT_H
#define LN_REQUANT_H

#include "kernel/kernel.h"

#include <math.h>

/* Entries behind the last channel's in every table, so that vectors may read beyond it. They repeat those of the
 * channels. */
enum { LN_REQUANT_PADDING = 15 };

enum ln_requant_mode { LN_REQUANT_FLOAT_RNE = 0, LN_REQUANT_TFLITE = 1, LN_REQUANT_TFLITE_SINGLE = 2 };

/* What an integer conv, conv_transpose or matmul needs besides geometry. Arrays have one entry per output channel, even
 * if the weights are quantized per tensor; they are NULL if the mode and the dtype of the output do not need them. */
typedef struct ln_requant {
    int mode;         /* ln_requant_mode; used only when the output is a quantized integer */
    int output_dtype; /* LINNET_F32, LINNET_I32 (raw, LINNET_I64 for 64-bit sums), LINNET_I8, LINNET_U8, LINNET_I16 */
    bool wide;        /* sums are 64-bit, because the activations are i16 */
    int32_t x_zero;
    int32_t y_zero;
    int32_t low, high; /* range of output_dtype */
    int64_t channels;
    const float *scale;   /* f32 output: sx * sw[c]; else float_rne: sx * sw[c] / sy; in f32 */
    const int32_t *fixed; /* tflite modes: multiplier in [2^30, 2^31), or 0 */
    const int32_t *shift; /* tflite modes: real multiplier = fixed * 2^(shift - 31) */
    const ln_quant *w_quant;
    /* Weights of 16 bits are 256 * high + low (gemm_driver.h). Bytes from a 32-bit sum of products with `high` to the
     * one with `low`; 0: sums are whole. */
    int64_t low_at;
} ln_requant;

/* The zero point of the weights of channel c. */
static inline int32_t ln_requant_w_zero(const ln_requant *r, int64_t c) {
    const ln_quant *q = r->w_quant;
    return q->zero == NULL ? 0 : q->zero[q->count > 1 ? c : 0];
}

/* Fills *r with memory of the call's plan. `w_axis` is the channel axis of w, whose quantization must be per tensor or
 * along this axis. `y` is the op's own result (call->inner). Fails with WRONG_DTYPE, SHAPE_MISMATCH or UNSUPPORTED when
 * the quantization of the operands cannot be used; ln_requant_usable checks this without allocating. */
linnet_status ln_requant_prepare(ln_call *call, const ln_tensor *x, const ln_tensor *w, int w_axis, const ln_tensor *y,
                                 int64_t channels, int mode, ln_requant *r);
/* Whether an integer kernel can use these operands: their dtypes, and quantization that is present and of the right
 * size. */
bool ln_requant_usable(const ln_tensor *x, const ln_tensor *w, int w_axis, const ln_tensor *bias, const ln_tensor *y,
                       int64_t channels, int mode);

/* The dtype rule of a product y = x . w + bias: floats must agree; quantized integers are i8 or u8 by i8 or u8, or i16
 * by i8, u8 or i16. `output_dtype` is the attribute (LINNET_NONE: the dtype of x). Unknown dtypes pass. Errors:
 * WRONG_DTYPE. */
linnet_status ln_infer_product_dtype(const ln_tensor *x, const ln_tensor *w, const ln_tensor *bias,
                                     int64_t output_dtype, uint8_t *y_dtype, linnet_error *error);

/* QuantizeMultiplier of TensorFlow Lite: real = fixed * 2^(shift - 31), from frexp, rounding half away from zero. */
void ln_fixed_point(double real, bool single_rounding, int32_t *fixed, int32_t *shift);

/* Part 0 or 1 of a number that is 256 * high + low with low in [-128, 127]: products with 16-bit weights are summed in
 * two parts. */
static inline int64_t ln_part_of(int64_t v, int part) {
    const int64_t low = (int8_t)(uint8_t)(v & 255);
    return part == 0 ? (int64_t)((uint64_t)v - (uint64_t)low) >> 8 : low;
}

/* 64-bit sums wrap, in every kernel. */
static inline int64_t ln_wrapped_sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

/* The number whose parts are these. */
static inline int64_t ln_joined_parts(int64_t high, int64_t low) {
    return (int64_t)((uint64_t)high * 256 + (uint64_t)low);
}

static inline int32_t ln_clamp_i32(int64_t v, int32_t low, int32_t high) {
    return v < low ? low : v > high ? high : (int32_t)v;
}

/* gemmlowp's SaturatingRoundingDoublingHighMul: (a * b * 2 + 2^31) / 2^32 with the division's truncation to zero. */
static inline int32_t ln_doubling_high_multiply(int32_t a, int32_t b) {
    if (a == INT32_MIN && b == INT32_MIN) return INT32_MAX;
    int64_t product = (int64_t)a * b;
    int64_t nudge = product >= 0 ? (1 << 30) : 1 - (1 << 30);
    return (int32_t)((product + nudge) / ((int64_t)1 << 31));
}

/* gemmlowp's RoundingDivideByPOT: rounds half away from zero. exponent in [0, 31]. */
static inline int32_t ln_rounding_shift_right(int32_t x, int exponent) {
    int32_t mask = (int32_t)(((int64_t)1 << exponent) - 1);
    int32_t remainder = x & mask;
    int32_t threshold = (mask >> 1) + (x < 0 ? 1 : 0);
    return (x >> exponent) + (remainder > threshold ? 1 : 0);
}

/* MultiplyByQuantizedMultiplier, double rounding. The left shift wraps, as 32-bit hardware does. */
static inline int32_t ln_fixed_multiply(int32_t x, int32_t fixed, int shift) {
    int left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
    int32_t shifted = (int32_t)((uint32_t)x << left);
    return ln_rounding_shift_right(ln_doubling_high_multiply(shifted, fixed), right);
}

/* MultiplyByQuantizedMultiplier, single rounding (half up), saturating where TensorFlow Lite only asserts. */
static inline int32_t ln_fixed_multiply_single(int32_t x, int32_t fixed, int shift) {
    int total = 31 - shift;
    int64_t rounded = (int64_t)x * fixed + ((int64_t)1 << (total - 1));
    return ln_clamp_i32(rounded >> total, INT32_MIN, INT32_MAX);
}

/* MultiplyByQuantizedMultiplier of a 64-bit sum: the multiplier is truncated to 16 bits. The result is exact for |x| <
   2^47; a larger x is saturated to this range. shift is in [-31, 7]. */
static inline int32_t ln_fixed_multiply_wide(int64_t x, int32_t fixed, int shift) {
    const int64_t limit = ((int64_t)1 << 47) - 1;
    int64_t reduced = fixed < 0x7fff0000 ? (fixed + (1 << 15)) >> 16 : 0x7fff;
    int total = 15 - shift;
    x = x > limit ? limit : x < -limit ? -limit : x;
    int64_t rounded = x * reduced + ((int64_t)1 << (total - 1));
    return ln_clamp_i32(rounded >> total, INT32_MIN, INT32_MAX);
}

/* clamp(rne(v) + zero). Clamping first gives the same result, because the bounds are integers, and keeps the conversion
 * in range. */
static inline int32_t ln_round_clamp(float v, int32_t zero, int32_t low, int32_t high) {
    float least = (float)(low - zero), most = (float)(high - zero);
    v = v < least ? least : v > most ? most : v;
    return (int32_t)lrintf(v) + zero;
}

/* The integer to store in channel c for a 32-bit or 64-bit sum. */
static inline int32_t ln_requant_i32(const ln_requant *r, int64_t c, int32_t sum) {
    if (r->mode == LN_REQUANT_FLOAT_RNE) return ln_round_clamp((float)sum * r->scale[c], r->y_zero, r->low, r->high);
    int32_t v = r->mode == LN_REQUANT_TFLITE ? ln_fixed_multiply(sum, r->fixed[c], r->shift[c])
                                             : ln_fixed_multiply_single(sum, r->fixed[c], r->shift[c]);
    return ln_clamp_i32((int64_t)v + r->y_zero, r->low, r->high);
}

static inline int32_t ln_requant_i64(const ln_requant *r, int64_t c, int64_t sum) {
    if (r->mode == LN_REQUANT_FLOAT_RNE) return ln_round_clamp((float)sum * r->scale[c], r->y_zero, r->low, r->high);
    return ln_clamp_i32((int64_t)ln_fixed_multiply_wide(sum, r->fixed[c], r->shift[c]) + r->y_zero, r->low, r->high);
}

/* Stores the sum of channel c at element `index` of the output, for every kind of output. */
static inline void ln_requant_store(const ln_requant *r, int64_t c, int64_t sum, void *y, int64_t index) {
    if (!r->wide) sum = (int32_t)sum; /* 32-bit sums wrap in every kernel */
    switch (r->output_dtype) {
    case LINNET_F32: ((float *)y)[index] = (float)sum * r->scale[c]; return;
    case LINNET_I32: ((int32_t *)y)[index] = ln_clamp_i32(sum, INT32_MIN, INT32_MAX); return;
    case LINNET_I64: ((int64_t *)y)[index] = sum; return;
    default: break;
    }
    int32_t v = r->wide ? ln_requant_i64(r, c, sum) : ln_requant_i32(r, c, (int32_t)sum);
    if (r->output_dtype == LINNET_I16)
        ((int16_t *)y)[index] = (int16_t)v;
    else
        ((uint8_t *)y)[index] = (uint8_t)v; /* the low byte, for i8 and u8 */
}

#endif
