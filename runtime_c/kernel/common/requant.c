/* requant.c - prepares the multipliers of integer convolutions and matrix products.
 * The arithmetic itself is in requant.h; docs/numerics.md defines it in words and test vectors. */
#include "kernel/common/requant.h"

#include "kernel/step.h"

/* Returns the number of scales. It is 0 if there is no quantization, and also for a scale per block, which integer
 * products do not support. */
static int64_t quant_count(const ln_quant *q) {
    return q == NULL ? 0 : q->scheme == LN_QUANT_TENSOR ? 1 : q->scheme == LN_QUANT_AXIS ? (int64_t)q->count : 0;
}

static double quant_scale(const ln_quant *q, int64_t c) { return q->scale[q->count > 1 ? c : 0]; }

static int32_t quant_zero(const ln_quant *q, int64_t c) { return q->zero == NULL ? 0 : q->zero[q->count > 1 ? c : 0]; }

void ln_fixed_point(double real, bool single_rounding, int32_t *fixed, int32_t *shift) {
    int exponent = 0;
    *fixed = 0, *shift = 0;
    if (!(real > 0)) return;
    double mantissa = frexp(real, &exponent);
    int64_t q = (int64_t)round(mantissa * 2147483648.0);
    if (q == (int64_t)1 << 31) q /= 2, exponent++;
    if (exponent < -31) /* the product rounds to 0 for every 32-bit sum */
        q = 0, exponent = 0;
    if (single_rounding && exponent > 30) q = INT32_MAX, exponent = 30;
    *fixed = (int32_t)q, *shift = exponent;
}

static bool output_is_stored_integer(int dtype) {
    return dtype == LINNET_I8 || dtype == LINNET_U8 || dtype == LINNET_I16;
}

/* Returns the largest shift for which the mode's arithmetic is defined. */
static int shift_limit(bool wide, int mode) { return wide ? 7 : mode == LN_REQUANT_TFLITE ? 31 : 30; }

bool ln_requant_usable(const ln_tensor *x, const ln_tensor *w, int w_axis, const ln_tensor *bias, const ln_tensor *y,
                       int64_t channels, int mode) {
    bool wide = x->dtype == LINNET_I16;
    bool x_ok = wide || x->dtype == LINNET_I8 || x->dtype == LINNET_U8;
    bool w_ok = w->dtype == LINNET_I8 || w->dtype == LINNET_U8 || (wide && w->dtype == LINNET_I16);
    if (!x_ok || !w_ok || mode < LN_REQUANT_FLOAT_RNE || mode > LN_REQUANT_TFLITE_SINGLE) return false;
    if (bias != NULL && bias->dtype != LINNET_NONE && bias->dtype != LINNET_I32 && !(wide && bias->dtype == LINNET_I64))
        return false;
    int64_t n_w = quant_count(w->quant);
    if (quant_count(x->quant) != 1 || n_w == 0 ||
        (n_w > 1 && (n_w != channels || ln_axis(w->quant->axis, w->rank) != w_axis)))
        return false;
    if (y->dtype == LINNET_F32 || y->dtype == LINNET_I32 || (wide && y->dtype == LINNET_I64)) return true;
    if (!output_is_stored_integer(y->dtype) || quant_count(y->quant) != 1) return false;
    if (mode == LN_REQUANT_FLOAT_RNE) return true;
    for (int64_t c = 0; c < n_w; c++) {
        int32_t fixed, shift;
        ln_fixed_point(quant_scale(x->quant, 0) * quant_scale(w->quant, c) / quant_scale(y->quant, 0),
                       mode == LN_REQUANT_TFLITE_SINGLE, &fixed, &shift);
        if (shift > shift_limit(wide, mode)) return false;
    }
    return true;
}

linnet_status ln_requant_prepare(ln_call *call, const ln_tensor *x, const ln_tensor *w, int w_axis, const ln_tensor *y,
                                 int64_t channels, int mode, ln_requant *r) {
    if (!ln_requant_usable(x, w, w_axis, NULL, y, channels, mode)) return LINNET_UNSUPPORTED;
    bool stored = output_is_stored_integer(y->dtype), by_float = mode == LN_REQUANT_FLOAT_RNE;
    size_t n = (size_t)(channels > 0 ? channels : 1) + LN_REQUANT_PADDING;
    float *scale = NULL;
    int32_t *fixed = NULL;
    const bool real = stored ? by_float : y->dtype == LINNET_F32;
    if (real || stored) {
        void *table = ln_call_state(call, (real ? 1 : 2) * n * sizeof *fixed);
        if (table == NULL) return LINNET_OUT_OF_MEMORY;
        if (real)
            scale = table;
        else
            fixed = table;
    }
    int32_t *shift = fixed != NULL ? fixed + n : NULL;
    *r = (ln_requant){.mode = mode,
                      .output_dtype = y->dtype,
                      .wide = x->dtype == LINNET_I16,
                      .channels = channels,
                      .scale = scale,
                      .fixed = fixed,
                      .shift = shift,
                      .w_quant = w->quant};
    r->x_zero = quant_zero(x->quant, 0);
    r->y_zero = stored ? quant_zero(y->quant, 0) : 0;
    r->low = y->dtype == LINNET_I8 ? INT8_MIN : y->dtype == LINNET_U8 ? 0 : INT16_MIN;
    r->high = y->dtype == LINNET_I8 ? INT8_MAX : y->dtype == LINNET_U8 ? UINT8_MAX : INT16_MAX;
    /* The entries after the last channel repeat the table, so that a vector may span several pixels of few channels. */
    for (int64_t i = 0; i < (int64_t)n && channels > 0; i++) {
        const int64_t c = i % channels;
        const double product = quant_scale(x->quant, 0) * quant_scale(w->quant, c);
        if (scale != NULL) /* computed in f32, as ONNX Runtime does */
            scale[i] = stored ? (float)product / y->quant->scale[0] : (float)product;
        if (fixed != NULL)
            ln_fixed_point(product / quant_scale(y->quant, 0), mode == LN_REQUANT_TFLITE_SINGLE, &fixed[i], &shift[i]);
    }
    return LINNET_OK;
}

linnet_status ln_infer_product_dtype(const ln_tensor *x, const ln_tensor *w, const ln_tensor *bias,
                                     int64_t output_dtype, uint8_t *y_dtype, linnet_error *error) {
    int x_dtype = x->dtype, bias_dtype = bias == NULL ? LINNET_NONE : bias->dtype;
    bool narrow = x_dtype == LINNET_I8 || x_dtype == LINNET_U8, wide = x_dtype == LINNET_I16;
    bool w_ok = narrow ? w->dtype == LINNET_I8 || w->dtype == LINNET_U8
                : wide ? w->dtype == LINNET_I8 || w->dtype == LINNET_U8 || w->dtype == LINNET_I16
                       : w->dtype == x_dtype;
    if (!w_ok) {
        ln_fail(error, LINNET_WRONG_DTYPE, "the dtypes of the two factors cannot be combined");
        ln_expected(error, "%s", narrow ? "i8 or u8 by i8 or u8" : wide ? "i16 by i8, u8 or i16" : "equal dtypes");
        return ln_got(error, "%s by %s", linnet_dtype_name(x_dtype), linnet_dtype_name(w->dtype));
    }
    bool bias_ok = bias_dtype == LINNET_NONE || (narrow ? bias_dtype == LINNET_I32
                                                 : wide ? bias_dtype == LINNET_I64 || bias_dtype == LINNET_I32
                                                        : bias_dtype == x_dtype);
    if (!bias_ok) {
        ln_fail(error, LINNET_WRONG_DTYPE, "bias has the wrong dtype");
        ln_expected(error, "%s", narrow ? "i32" : wide ? "i64 or i32" : linnet_dtype_name(x_dtype));
        return ln_got(error, "%s", linnet_dtype_name(bias_dtype));
    }
    int y = output_dtype == LINNET_NONE ? x_dtype : (int)output_dtype;
    bool y_ok = narrow || wide ? y == LINNET_F32 || y == LINNET_I32 || y == LINNET_I8 || y == LINNET_U8 ||
                                     y == LINNET_I16 || (wide && y == LINNET_I64)
                               : y == x_dtype;
    if (!y_ok) {
        ln_fail(error, LINNET_WRONG_DTYPE, "output_dtype is not supported for the dtypes of the operands");
        ln_expected(error, "%s",
                    narrow || wide ? "i8, u8, i16, i32 or f32 (i64 for i16)" : "the dtype of the operands, or none");
        return ln_got(error, "%s", linnet_dtype_name(y));
    }
    *y_dtype = (uint8_t)y;
    return LINNET_OK;
}
