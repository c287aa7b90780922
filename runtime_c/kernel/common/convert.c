/* convert.c - the conversion of one element between any two dtypes, and the ranges of quantized ones. */
#include "kernel/common/convert.h"

static inline int64_t ln_f64_to_i64(double v) {
    if (!(v == v)) return 0;
    if (v >= 9223372036854775808.0) return INT64_MAX;
    return v < -9223372036854775808.0 ? INT64_MIN : (int64_t)v;
}

static inline uint64_t ln_f64_to_u64(double v) {
    if (!(v > 0.0)) return 0;
    return v >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)v;
}

void ln_store_float_as(void *data, int dtype, int64_t index, double v) {
    int64_t low, high, i;
    switch (dtype) {
    case LINNET_I8: low = INT8_MIN, high = INT8_MAX; break;
    case LINNET_U8: low = 0, high = UINT8_MAX; break;
    case LINNET_I16: low = INT16_MIN, high = INT16_MAX; break;
    case LINNET_U16: low = 0, high = UINT16_MAX; break;
    case LINNET_I32: low = INT32_MIN, high = INT32_MAX; break;
    case LINNET_U32: low = 0, high = UINT32_MAX; break;
    case LINNET_I4: low = -8, high = 7; break;
    case LINNET_U4: low = 0, high = 15; break;
    case LINNET_I64: low = INT64_MIN, high = INT64_MAX; break;
    case LINNET_U64: ((uint64_t *)data)[index] = ln_f64_to_u64(v); return;
    case LINNET_BOOL: ((uint8_t *)data)[index] = v != 0.0; return;
    case LINNET_F64: ((double *)data)[index] = v; return;
    default: ln_store_f64(data, dtype, index, v); return;
    }
    i = ln_f64_to_i64(v);
    ln_store_wrapped(data, dtype, index, i < low ? low : i > high ? high : i);
}

void ln_convert_element(void *to, int to_dtype, int64_t to_index, const void *from, int from_dtype,
                        int64_t from_index) {
    if (ln_dtype_is_float(from_dtype)) {
        ln_store_float(to, to_dtype, to_index, ln_load_f64(from, from_dtype, from_index));
        return;
    }
    if (from_dtype == LINNET_U64 && ln_dtype_is_float(to_dtype)) {
        uint64_t u = ((const uint64_t *)from)[from_index];
        ln_store_float(to, to_dtype, to_index, to_dtype == LINNET_F32 ? (double)(float)u : (double)u);
        return;
    }
    int64_t v = ln_load_wrapped(from, from_dtype, from_index);
    if (to_dtype == LINNET_F32)
        ((float *)to)[to_index] = (float)v; /* converted directly from the integer, so that the value is rounded once */
    else if (ln_dtype_is_float(to_dtype))
        ln_store_i64(to, to_dtype, to_index, v);
    else
        ln_store_wrapped(to, to_dtype, to_index, v);
}

void ln_quant_range(int dtype, int bits, int64_t *low, int64_t *high) {
    int width = ln_dtype_bits(dtype);
    bool is_signed = dtype == LINNET_I8 || dtype == LINNET_I16 || dtype == LINNET_I32 || dtype == LINNET_I4;
    if (bits <= 0 || bits > width) bits = width;
    *low = is_signed ? -((int64_t)1 << (bits - 1)) : 0;
    *high = is_signed ? ((int64_t)1 << (bits - 1)) - 1 : ((int64_t)1 << bits) - 1;
}
