/* convert.h - converts one element from any dtype to any dtype, as the op `cast` defines it (docs/numerics.md,
 * "Casts"). Integer to integer keeps the low bits (like ONNX Cast); float to integer truncates and saturates, and NaN
 * becomes 0. */
#ifndef LN_CONVERT_H
#define LN_CONVERT_H

#include "base/types.h"

#include <string.h>

/* Stores the low bits of v as an integer dtype; a bool becomes v != 0. Two elements of i4 or u4 share a byte, so
 * threads must not store neighbours at the same time. */
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

/* Loads an element of any integer dtype as i64. A u64 keeps its bits, so values from 2^63 on become negative. */
static inline int64_t ln_load_wrapped(const void *data, int dtype, int64_t index) {
    if (dtype == LINNET_U64) return (int64_t)((const uint64_t *)data)[index];
    return ln_load_i64(data, dtype, index);
}

/* Stores a float value as any dtype, by the rules above. ln_store_float handles f32 inline and leaves the other dtypes
 * to ln_store_float_as (convert.c). */
void ln_store_float_as(void *data, int dtype, int64_t index, double v);
static inline void ln_store_float(void *data, int dtype, int64_t index, double v) {
    if (dtype == LINNET_F32)
        ((float *)data)[index] = (float)v;
    else
        ln_store_float_as(data, dtype, index, v);
}

/* Converts element from_index of `from` and stores it as element to_index of `to`. */
void ln_convert_element(void *to, int to_dtype, int64_t to_index, const void *from, int from_dtype, int64_t from_index);

/* Clears the memory of a dense tensor. A kernel calls this before it stores elements that share bytes, so that the
 * unused bits at the end are 0. Returns the number of elements. */
static inline int64_t ln_clear_packed(void *data, const ln_tensor *t) {
    const int64_t count = ln_count(t);
    memset(data, 0, (size_t)ln_bytes_of(t->dtype, count));
    return count;
}

/* Sets [*low, *high] to the range of integers that a quantized dtype stores. `bits` narrows the range (such as int4
 * values in i8); 0, or more bits than the dtype has, means all bits of the dtype. */
void ln_quant_range(int dtype, int bits, int64_t *low, int64_t *high);

#endif
