/* convert.h - converts one element from any dtype to any dtype, as the op `cast` defines it (docs/numerics.md,
 * "Casts"). Integer to integer keeps the low bits (like ONNX Cast); float to integer truncates and saturates, and NaN
 * becomes 0. */
#ifndef LN_CONVERT_H
#define LN_CONVERT_H

#include "base/types.h"

#include <string.h>

/* Stores the low bits of v as an integer dtype; for bool, v != 0. */
static inline void ln_store_wrapped(void *data, int dtype, int64_t index, int64_t v) {
    switch (dtype) {
    case LINNET_I8:
    case LINNET_U8: ((uint8_t *)data)[index] = (uint8_t)v; break;
    case LINNET_I16:
    case LINNET_U16: ((uint16_t *)data)[index] = (uint16_t)v; break;
    case LINNET_I32:
    case LINNET_U32: ((uint32_t *)data)[index] = (uint32_t)v; break;
    case LINNET_I64:
    case LINNET_U64: ((uint64_t *)data)[index] = (uint64_t)v; break;
    case LINNET_BOOL: ((uint8_t *)data)[index] = v != 0; break;
    case LINNET_I4:
    case LINNET_U4: ln_store_half_byte(data, index, v); break;
    default: ln_store_i64(data, dtype, index, v); break;
    }
}

/* Loads any integer as i64. A u64 keeps its bits. */
static inline int64_t ln_load_wrapped(const void *data, int dtype, int64_t index) {
    if (dtype == LINNET_U64) return (int64_t)((const uint64_t *)data)[index];
    return ln_load_i64(data, dtype, index);
}

static inline int64_t ln_f64_to_i64(double v) {
    if (!(v == v)) return 0;
    if (v >= 9223372036854775808.0) return INT64_MAX;
    return v < -9223372036854775808.0 ? INT64_MIN : (int64_t)v;
}

static inline uint64_t ln_f64_to_u64(double v) {
    if (!(v > 0.0)) return 0;
    return v >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)v;
}

/* Stores a float value as any dtype. */
static inline void ln_store_float(void *data, int dtype, int64_t index, double v) {
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
    case LINNET_F32: ((float *)data)[index] = (float)v; return;
    case LINNET_F64: ((double *)data)[index] = v; return;
    default: ln_store_f64(data, dtype, index, v); return;
    }
    i = ln_f64_to_i64(v);
    ln_store_wrapped(data, dtype, index, i < low ? low : i > high ? high : i);
}

/* convert.c */
void ln_convert_element(void *to, int to_dtype, int64_t to_index, const void *from, int from_dtype, int64_t from_index);

/* Clears a tensor whose elements share bytes, so that the unused bits at its end are 0. Returns its number of elements.
 */
static inline int64_t ln_clear_packed(void *data, const ln_tensor *t) {
    const int64_t count = ln_count(t);
    memset(data, 0, (size_t)ln_bytes_of(t->dtype, count));
    return count;
}

/* Stored range of a quantized dtype: `bits` narrows it (int4 in i8); 0 means all bits of the dtype. */
void ln_quant_range(int dtype, int bits, int64_t *low, int64_t *high);

#endif
