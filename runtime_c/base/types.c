/* types.c - dtypes, tensor arithmetic, and scalar access with conversion between dtypes.
 * Float conversions are exact bit manipulations, so that every ISA and compiler agrees with them. */
#include "base/types.h"

#include <math.h>
#include <string.h>

extern inline int ln_dtype_bits(int dtype);
extern inline size_t ln_dtype_size(int dtype);

bool ln_dtype_is_float(int dtype) { return dtype >= LINNET_F32 && dtype <= LINNET_F64; }

int64_t ln_count(const ln_tensor *t) {
    int64_t count = 1;
    if (t->rank < 0) return -1;
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] < 0) return -1;
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] == 0) return 0;
    for (int i = 0; i < t->rank; i++) count = count > INT64_MAX / t->dims[i] ? INT64_MAX : count * t->dims[i];
    return count;
}

bool ln_bytes(const ln_tensor *t, uint64_t *bytes) {
    uint64_t total = (uint64_t)ln_dtype_bits(t->dtype);
    bool empty = false;
    *bytes = 0;
    if (t->rank < 0) return false;
    for (int i = 0; i < t->rank; i++) {
        if (t->dims[i] < 0) return false;
        if (t->dims[i] == 0)
            empty = true;
        else if (total > 8 * LN_MOST_BYTES / (uint64_t)t->dims[i]) /* also checked for an empty tensor, because its
                                                                  strides are products too */
            return false;
        else
            total *= (uint64_t)t->dims[i];
    }
    *bytes = empty ? 0 : (total + 7) / 8;
    return true;
}

uint64_t ln_known_bytes(const ln_tensor *t) {
    uint64_t bytes;
    return ln_bytes(t, &bytes) ? bytes : 0;
}

uint64_t ln_bytes_of(int dtype, int64_t count) { return ((uint64_t)count * (uint64_t)ln_dtype_bits(dtype) + 7) / 8; }

int64_t ln_offset_of_element(int dtype, int64_t number) {
    const int64_t bits = number * ln_dtype_bits(dtype);
    return (bits - (bits & 7)) / 8;
}

bool ln_element_aligned(int dtype, int64_t number, uint64_t bytes) {
    return (uint64_t)number * (uint64_t)ln_dtype_bits(dtype) % (8 * bytes) == 0;
}

int64_t ln_block_count(const ln_tensor *t, int axis, int64_t block) {
    ln_tensor blocks = *t;
    if (t->dims[axis] > 0) blocks.dims[axis] = (t->dims[axis] - 1) / block + 1;
    return ln_count(&blocks);
}

int ln_axis(int64_t axis, int rank) {
    if (axis < -rank || axis >= rank) return -1;
    return (int)(axis < 0 ? axis + rank : axis);
}

/* ---- 16-bit floats: round to nearest even; NaNs stay NaN and become quiet, as the hardware conversions do ----------
 */

static float float_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of_float(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

float ln_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 31u, mantissa = h & 1023u;
    if (exponent == 31) return float_of_bits(sign | 0x7f800000u | (mantissa ? 0x400000u : 0) | mantissa << 13);
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24, exact */
        float value = (float)mantissa * 0x1p-24f;
        return float_of_bits(sign | bits_of_float(value));
    }
    return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t ln_f32_to_f16(float f) {
    uint32_t bits = bits_of_float(f), magnitude = bits & 0x7fffffffu;
    uint32_t sign = bits >> 16 & 0x8000u;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and above rounds to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* below 2^-14: subnormal, in units of 2^-24 */
        uint32_t exponent = magnitude >> 23, shift, mantissa, half, rest, result;
        if (exponent < 102) /* below 2^-25 */
            return (uint16_t)sign;
        mantissa = (magnitude & 0x7fffffu) | 0x800000u;
        shift = 126 - exponent; /* 14 to 24 */
        result = mantissa >> shift;
        rest = mantissa & (((uint32_t)1 << shift) - 1);
        half = (uint32_t)1 << (shift - 1);
        result += rest > half || (rest == half && (result & 1));
        return (uint16_t)(sign | result);
    }
    magnitude += 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | ((magnitude - 0x38000000u) >> 13));
}

float ln_bf16_to_f32(uint16_t h) { return float_of_bits((uint32_t)h << 16); }

uint16_t ln_f32_to_bf16(float f) {
    uint32_t bits = bits_of_float(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Rounds to odd. Rounding the result again, to at most 22 bits, then rounds the double correctly (Boldo & Melquiond,
 * "When double rounding is odd", 2005). */
static float round_to_odd(double value) {
    float f = (float)value;
    uint32_t bits = bits_of_float(f);
    if (value != value || (double)f == value || (bits & 1u)) return f;
    /* f is the even neighbour; the odd neighbour is on the other side of value. bits + 1 moves away from zero. */
    return float_of_bits(fabs((double)f) < fabs(value) ? bits + 1 : bits - 1);
}

/* Rounds an integer to odd: halves it until a float can represent it, and sets the lowest bit if a lost bit was 1. */
static float integer_to_odd(int64_t value) {
    uint64_t magnitude = value < 0 ? 0u - (uint64_t)value : (uint64_t)value;
    uint32_t exponent = 127;
    while (magnitude >> 24) {
        magnitude = magnitude >> 1 | (magnitude & 1u);
        exponent++;
    }
    float f = (float)magnitude * float_of_bits(exponent << 23);
    return value < 0 ? -f : f;
}

/* ---- scalar access ----------------------------------------------------------------------------------------------- */

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

static int64_t truncate_to_i64(double value) {
    if (value != value) return 0;
    if (value >= 0x1p63) return INT64_MAX;
    return value <= -0x1p63 ? INT64_MIN : (int64_t)value;
}

static uint64_t truncate_to_u64(double value) {
    if (!(value > 0)) return 0;
    return value >= 0x1p64 ? UINT64_MAX : (uint64_t)value;
}

static int load_half_byte(const void *data, int64_t index) {
    return ((const uint8_t *)data)[index / 2] >> (index % 2 * 4) & 15;
}

void ln_store_half_byte(void *data, int64_t index, int64_t value) {
    uint8_t *byte = (uint8_t *)data + index / 2;
    const int shift = index % 2 * 4;
    *byte = (uint8_t)((*byte & ~(15 << shift)) | (int)(value & 15) << shift);
}

double ln_load_f64(const void *data, int dtype, int64_t index) {
    switch (dtype) {
    case LINNET_F32: return ((const float *)data)[index];
    case LINNET_F16: return ln_f16_to_f32(((const uint16_t *)data)[index]);
    case LINNET_BF16: return ln_bf16_to_f32(((const uint16_t *)data)[index]);
    case LINNET_F64: return ((const double *)data)[index];
    case LINNET_U64: return (double)((const uint64_t *)data)[index];
    default: return (double)ln_load_i64(data, dtype, index);
    }
}

int64_t ln_load_i64(const void *data, int dtype, int64_t index) {
    switch (dtype) {
    case LINNET_I8: return ((const int8_t *)data)[index];
    case LINNET_I16: return ((const int16_t *)data)[index];
    case LINNET_I32: return ((const int32_t *)data)[index];
    case LINNET_I64: return ((const int64_t *)data)[index];
    case LINNET_U8: return ((const uint8_t *)data)[index];
    case LINNET_U16: return ((const uint16_t *)data)[index];
    case LINNET_U32: return ((const uint32_t *)data)[index];
    case LINNET_U64: {
        uint64_t value = ((const uint64_t *)data)[index];
        return value > INT64_MAX ? INT64_MAX : (int64_t)value;
    }
    case LINNET_BOOL: return ((const uint8_t *)data)[index] != 0;
    case LINNET_I4: return (load_half_byte(data, index) ^ 8) - 8;
    case LINNET_U4: return load_half_byte(data, index);
    case LINNET_F32:
    case LINNET_F16:
    case LINNET_BF16:
    case LINNET_F64: return truncate_to_i64(ln_load_f64(data, dtype, index));
    default: return 0;
    }
}

void ln_store_f64(void *data, int dtype, int64_t index, double value) {
    switch (dtype) {
    case LINNET_F32: ((float *)data)[index] = (float)value; break;
    case LINNET_F16: ((uint16_t *)data)[index] = ln_f32_to_f16(round_to_odd(value)); break;
    case LINNET_BF16: ((uint16_t *)data)[index] = ln_f32_to_bf16(round_to_odd(value)); break;
    case LINNET_F64: ((double *)data)[index] = value; break;
    case LINNET_U64: ((uint64_t *)data)[index] = truncate_to_u64(value); break;
    case LINNET_BOOL: ((uint8_t *)data)[index] = value != 0; break;
    default: ln_store_i64(data, dtype, index, truncate_to_i64(value)); break;
    }
}

void ln_store_i64(void *data, int dtype, int64_t index, int64_t value) {
    switch (dtype) {
    case LINNET_I8: ((int8_t *)data)[index] = (int8_t)clamp(value, INT8_MIN, INT8_MAX); break;
    case LINNET_I16: ((int16_t *)data)[index] = (int16_t)clamp(value, INT16_MIN, INT16_MAX); break;
    case LINNET_I32: ((int32_t *)data)[index] = (int32_t)clamp(value, INT32_MIN, INT32_MAX); break;
    case LINNET_I64: ((int64_t *)data)[index] = value; break;
    case LINNET_U8: ((uint8_t *)data)[index] = (uint8_t)clamp(value, 0, UINT8_MAX); break;
    case LINNET_U16: ((uint16_t *)data)[index] = (uint16_t)clamp(value, 0, UINT16_MAX); break;
    case LINNET_U32: ((uint32_t *)data)[index] = (uint32_t)clamp(value, 0, UINT32_MAX); break;
    case LINNET_U64: ((uint64_t *)data)[index] = value < 0 ? 0 : (uint64_t)value; break;
    case LINNET_I4: ln_store_half_byte(data, index, clamp(value, -8, 7)); break;
    case LINNET_U4: ln_store_half_byte(data, index, clamp(value, 0, 15)); break;
    case LINNET_BOOL: ((uint8_t *)data)[index] = value != 0; break;
    case LINNET_F32: ((float *)data)[index] = (float)value; break;
    case LINNET_F64: ((double *)data)[index] = (double)value; break;
    case LINNET_F16: ((uint16_t *)data)[index] = ln_f32_to_f16(integer_to_odd(value)); break;
    case LINNET_BF16: ((uint16_t *)data)[index] = ln_f32_to_bf16(integer_to_odd(value)); break;
    default: break;
    }
}
