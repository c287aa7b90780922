/* requant.h - converts exact integer sums to stored values, in the three requantization modes (docs/numerics.md).
 * ln_requant_prepare fills an ln_requant once per call. The inline functions define the result; vector code must give
 * the same bits. */
#ifndef LN_REQUANT_H
#define LN_REQUANT_H

#include "kernel/kernel.h"

#include <math.h>

/* The number of entries in every table after the entry of the last channel, so that vectors may read beyond it. These
 * entries repeat the table from its beginning. */
enum { LN_REQUANT_PADDING = 15 };

enum ln_requant_mode { LN_REQUANT_FLOAT_RNE = 0, LN_REQUANT_TFLITE = 1, LN_REQUANT_TFLITE_SINGLE = 2 };

/* What an integer conv, conv_transpose or matmul needs besides its geometry. Arrays have one entry per output channel,
 * even if the weights are quantized per tensor. An array is NULL if the mode and the dtype of the output do not need
 * it.
 */
typedef struct ln_requant {
    int mode;         /* ln_requant_mode; used only when the output is a quantized integer */
    int output_dtype; /* LINNET_I8, U8 or I16: requantized; F32: scaled; I32, or I64 if `wide`: the sums themselves */
    bool wide;        /* sums are 64-bit, because the activations are i16 */
    bool rounded;     /* kernels round 64-bit sums to f32 before they store a tile */
    int32_t x_zero;
    int32_t y_zero;    /* 0 unless the output is a quantized integer */
    int32_t low, high; /* of a quantized output: the range of output_dtype */
    int64_t channels;
    /* For f32 output: sx * sw[c]; for quantized output with float_rne: sx * sw[c] / sy; else NULL. */
    const float *scale;
    const int32_t *fixed; /* in the tflite modes: the multiplier in [2^30, 2^31), or 0; else NULL */
    const int32_t *shift; /* in the tflite modes: the real multiplier is fixed * 2^(shift - 31); else NULL */
    const ln_quant *w_quant;
    /* A kernel may split 16-bit weights into 256 * high + low (ln_gemm_b.parts) and keep one 32-bit sum per part. This
     * is the number of bytes from the sum of products with `high` to the sum with `low`; 0: sums are not split. */
    int64_t low_at;
} ln_requant;

/* Returns the zero point of the weights of channel c. */
static inline int32_t ln_requant_w_zero(const ln_requant *r, int64_t c) {
    const ln_quant *q = r->w_quant;
    return q->zero == NULL ? 0 : q->zero[q->count > 1 ? c : 0];
}

/* Fills *r at plan time. Its tables are in memory of the call's plan. `w_axis` is the channel axis of w, whose
 * quantization must be per tensor or along this axis. `y` is the op's own result (call->inner). Errors: UNSUPPORTED if
 * ln_requant_usable is false for these operands, OUT_OF_MEMORY. */
linnet_status ln_requant_prepare(ln_call *call, const ln_tensor *x, const ln_tensor *w, int w_axis, const ln_tensor *y,
                                 int64_t channels, int mode, ln_requant *r);
/* Tells whether an integer kernel can use these operands: their dtypes fit, their quantization is present and has the
 * right size, and the mode can express every multiplier. `bias` may be NULL. Allocates nothing, so `can` may call
 * it. */
bool ln_requant_usable(const ln_tensor *x, const ln_tensor *w, int w_axis, const ln_tensor *bias, const ln_tensor *y,
                       int64_t channels, int mode);

/* The dtype rule of a product y = x . w + bias. x and w have the same float dtype, or they are quantized integers: x is
 * i8 or u8 and w is i8 or u8, or x is i16 and w is i8, u8 or i16. `output_dtype` is the op's attribute; LINNET_NONE
 * means the dtype of x. bias may be NULL. Sets *y_dtype. Errors: WRONG_DTYPE. */
linnet_status ln_infer_product_dtype(const ln_tensor *x, const ln_tensor *w, const ln_tensor *bias,
                                     int64_t output_dtype, uint8_t *y_dtype, linnet_error *error);

/* QuantizeMultiplier of TensorFlow Lite: finds fixed and shift with real = fixed * 2^(shift - 31), rounded half away
 * from zero. Both become 0 if real is not positive or too small to matter. With single_rounding, shift is at most 30.
 */
void ln_fixed_point(double real, bool single_rounding, int32_t *fixed, int32_t *shift);

/* Part 0 (high) or 1 (low) of v = 256 * high + low, with low in [-128, 127]. Products with 16-bit weights are summed in
 * these two parts. */
static inline int64_t ln_part_of(int64_t v, int part) {
    const int64_t low = (int8_t)(uint8_t)(v & 255);
    return part == 0 ? (int64_t)((uint64_t)v - (uint64_t)low) >> 8 : low;
}

/* Adds with wrap-around, which every kernel uses for 64-bit sums. */
static inline int64_t ln_wrapped_sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

/* Returns the number that ln_part_of splits into these parts. */
static inline int64_t ln_joined_parts(int64_t high, int64_t low) {
    return (int64_t)((uint64_t)high * 256 + (uint64_t)low);
}

static inline int32_t ln_clamp_i32(int64_t v, int32_t low, int32_t high) {
    return v < low ? low : v > high ? high : (int32_t)v;
}

/* gemmlowp's SaturatingRoundingDoublingHighMul: a * b / 2^31, rounded to nearest. The division truncates towards zero,
 * so the number that is added first (nudge) depends on the sign of the product. */
static inline int32_t ln_doubling_high_multiply(int32_t a, int32_t b) {
    if (a == INT32_MIN && b == INT32_MIN) return INT32_MAX;
    int64_t product = (int64_t)a * b;
    int64_t nudge = product >= 0 ? (1 << 30) : 1 - (1 << 30);
    return (int32_t)((product + nudge) / ((int64_t)1 << 31));
}

/* gemmlowp's RoundingDivideByPOT: x / 2^exponent, rounded half away from zero. exponent is in [0, 31]. */
static inline int32_t ln_rounding_shift_right(int32_t x, int exponent) {
    int32_t mask = (int32_t)(((int64_t)1 << exponent) - 1);
    int32_t remainder = x & mask;
    int32_t threshold = (mask >> 1) + (x < 0 ? 1 : 0);
    return (x >> exponent) + (remainder > threshold ? 1 : 0);
}

/* MultiplyByQuantizedMultiplier with two roundings: of the product and of the right shift. The left shift wraps, as on
 * 32-bit hardware. */
static inline int32_t ln_fixed_multiply(int32_t x, int32_t fixed, int shift) {
    int left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
    int32_t shifted = (int32_t)((uint32_t)x << left);
    return ln_rounding_shift_right(ln_doubling_high_multiply(shifted, fixed), right);
}

/* MultiplyByQuantizedMultiplier with one rounding (half up). It saturates where TensorFlow Lite only asserts. shift is
 * at most 30. */
static inline int32_t ln_fixed_multiply_single(int32_t x, int32_t fixed, int shift) {
    int total = 31 - shift;
    int64_t rounded = (int64_t)x * fixed + ((int64_t)1 << (total - 1));
    return ln_clamp_i32(rounded >> total, INT32_MIN, INT32_MAX);
}

/* MultiplyByQuantizedMultiplier of a 64-bit sum: the multiplier is first rounded to 16 bits. |x| < 2^47 is multiplied
   exactly; a larger x saturates to this range. shift is in [-31, 7]. */
static inline int32_t ln_fixed_multiply_wide(int64_t x, int32_t fixed, int shift) {
    const int64_t limit = ((int64_t)1 << 47) - 1;
    int64_t reduced = fixed < 0x7fff0000 ? (fixed + (1 << 15)) >> 16 : 0x7fff;
    int total = 15 - shift;
    x = x > limit ? limit : x < -limit ? -limit : x;
    int64_t rounded = x * reduced + ((int64_t)1 << (total - 1));
    return ln_clamp_i32(rounded >> total, INT32_MIN, INT32_MAX);
}

/* Rounds v half to even, adds zero, and clamps. The clamp comes first here, so that the conversion to an integer is in
 * range. The result is the same, because the bounds are integers. */
static inline int32_t ln_round_clamp(float v, int32_t zero, int32_t low, int32_t high) {
    float least = (float)(low - zero), most = (float)(high - zero);
    v = v < least ? least : v > most ? most : v;
    return (int32_t)lrintf(v) + zero;
}

/* Returns the integer to store in channel c for a 32-bit sum, and for a 64-bit sum. The output must be a quantized
 * integer. */
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

/* Stores the sum of channel c as element `index` of y, for every output_dtype. */
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
