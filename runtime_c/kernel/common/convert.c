/* convert.c - the conversion of one element between any two dtypes, and the ranges of quantized ones. */
#include "kernel/common/convert.h"

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
