/* test_types.c - 16-bit floats over all bit patterns, scalar access with conversion, tensor arithmetic, CRC-32.
 * The expected 16-bit results come from exact arithmetic in double, not from the code under test. */
#include "check.h"

#include "base/layout.h"
#include "base/types.h"

#include <math.h>

/* Returns the value of a 16-bit float by its definition (IEEE 754-2019, 3.4). */
static double value_of(unsigned bits, int exponent_bits, int mantissa_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1, exponent = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    double mantissa = bits & ((1u << mantissa_bits) - 1), sign = bits & 0x8000u ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + ldexp(1, mantissa_bits), exponent - bias - mantissa_bits);
}

static int same(double a, double b) { return (isnan(a) && isnan(b)) || (a == b && !signbit(a) == !signbit(b)); }

static void every_half(int dtype, int exponent_bits, int mantissa_bits) {
    int wrong_load = 0, wrong_store = 0, wrong_tie = 0;
    for (unsigned bits = 0; bits < 65536; bits++) {
        uint16_t h = (uint16_t)bits, back = 0;
        double value = value_of(bits, exponent_bits, mantissa_bits), loaded = ln_load_f64(&h, dtype, 0);
        wrong_load += !same(value, loaded);
        ln_store_f64(&back, dtype, 0, value);
        wrong_store += isnan(value) ? !isnan(value_of(back, exponent_bits, mantissa_bits)) : back != h;
        /* Halfway to the next number away from zero rounds to the even one; slightly to either side rounds to the
         * nearer one. */
        if (isfinite(value) && isfinite(value_of(bits + 1, exponent_bits, mantissa_bits)) &&
            (bits & 0x7fffu) != 0x7fffu) {
            double next = value_of(bits + 1, exponent_bits, mantissa_bits), middle = 0.5 * (value + next);
            ln_store_f64(&back, dtype, 0, middle);
            wrong_tie += back != (bits & 1 ? bits + 1 : bits);
            ln_store_f64(&back, dtype, 0, nextafter(middle, value));
            wrong_tie += back != bits;
            ln_store_f64(&back, dtype, 0, nextafter(middle, next));
            wrong_tie += back != bits + 1;
        }
    }
    CHECK_INT(wrong_load, 0);
    CHECK_INT(wrong_store, 0);
    CHECK_INT(wrong_tie, 0);
}

static void half_limits(void) {
    CHECK_INT(ln_f32_to_f16(65504.0f), 0x7bff);
    CHECK_INT(ln_f32_to_f16(65519.0f), 0x7bff);
    CHECK_INT(ln_f32_to_f16(65520.0f), 0x7c00);
    CHECK_INT(ln_f32_to_f16(-1e30f), 0xfc00);
    CHECK_INT(ln_f32_to_f16(0x1p-25f), 0x0000); /* half of the smallest number: rounds to even */
    CHECK_INT(ln_f32_to_f16(0x1.000002p-25f), 0x0001);
    CHECK_INT(ln_f32_to_f16(-0.0f), 0x8000);
    CHECK_INT(ln_f32_to_bf16(3.3895314e38f), 0x7f7f);
    CHECK_INT(ln_f32_to_bf16(3.4028235e38f), 0x7f80);
    CHECK(isnan(ln_f16_to_f32(ln_f32_to_f16(NAN))));
    CHECK(isnan(ln_bf16_to_f32(ln_f32_to_bf16(NAN))));
}

static int64_t stored(int dtype, double value) {
    int64_t memory = 0;
    ln_store_f64(&memory, dtype, 0, value);
    return ln_load_i64(&memory, dtype, 0);
}

static void conversions(void) {
    uint64_t big = UINT64_MAX;
    uint16_t half;
    CHECK_INT(stored(LINNET_I8, 127.9), 127);
    CHECK_INT(stored(LINNET_I8, 300), 127);
    CHECK_INT(stored(LINNET_I8, -300), -128);
    CHECK_INT(stored(LINNET_U8, -1), 0);
    CHECK_INT(stored(LINNET_U8, 255.5), 255);
    CHECK_INT(stored(LINNET_I16, -1.99), -1);
    CHECK_INT(stored(LINNET_U16, 1e9), 65535);
    CHECK_INT(stored(LINNET_I32, 1e300), INT32_MAX);
    CHECK_INT(stored(LINNET_I32, NAN), 0);
    CHECK_INT(stored(LINNET_I64, -1e300), INT64_MIN);
    CHECK_INT(stored(LINNET_I64, INFINITY), INT64_MAX);
    CHECK_INT(stored(LINNET_I64, 0x1p63), INT64_MAX); /* the first double that does not fit */
    CHECK_INT(stored(LINNET_I64, 0x1.fffffffffffffp62), INT64_MAX - 1023);
    CHECK_INT(stored(LINNET_I64, -0x1p63), INT64_MIN);
    CHECK_INT(stored(LINNET_U32, 4294967295.0), 4294967295LL);
    CHECK_INT(stored(LINNET_BOOL, 0.25), 1);
    CHECK_INT(stored(LINNET_BOOL, -0.0), 0);
    CHECK_INT(ln_load_i64(&big, LINNET_U64, 0), INT64_MAX);
    CHECK(ln_load_f64(&big, LINNET_U64, 0) == 0x1p64);
    ln_store_f64(&big, LINNET_U64, 0, 0x1p64);
    CHECK(big == UINT64_MAX);
    ln_store_f64(&big, LINNET_U64, 0, NAN);
    CHECK(big == 0);
    ln_store_i64(&half, LINNET_F16, 0, 2049); /* tie: to even */
    CHECK(ln_f16_to_f32(half) == 2048.0f);
    ln_store_i64(&half, LINNET_BF16, 0, (int64_t)0x4040000000000001); /* a tie except for the last bit */
    CHECK(ln_bf16_to_f32(half) == 0x1.02p62f);
    ln_store_i64(&half, LINNET_BF16, 0, INT64_MIN);
    CHECK(ln_bf16_to_f32(half) == -0x1p63f);
    CHECK_INT(ln_dtype_size(LINNET_NONE), 0);
    CHECK_INT(ln_dtype_size(-1), 0);
    CHECK_INT(ln_dtype_size(LN_LAST_DTYPE + 1), 0);
    CHECK_INT(ln_dtype_bits(LN_LAST_DTYPE + 1), 0);
    CHECK(linnet_dtype_name(LN_LAST_DTYPE + 1) == NULL);
    CHECK_TEXT(linnet_dtype_name(LINNET_U4), "u4");
    CHECK_INT(ln_dtype_size(LINNET_I4), 0); /* two elements in a byte */
    CHECK_INT(ln_dtype_bits(LINNET_I4), 4);
    CHECK_INT(ln_bytes_of(LINNET_U4, 5), 3);
    CHECK_INT(ln_bytes_of(LINNET_F32, 5), 20);
    CHECK_INT(ln_offset_of_element(LINNET_I4, 7), 3);
    CHECK_INT(ln_offset_of_element(LINNET_I16, -3), -6);
    uint8_t nibbles[2] = {0, 0};
    ln_store_i64(nibbles, LINNET_I4, 0, -100);
    ln_store_i64(nibbles, LINNET_I4, 1, 3);
    ln_store_i64(nibbles, LINNET_U4, 3, 100);
    CHECK_INT(nibbles[0], 0x38);
    CHECK_INT(nibbles[1], 0xf0);
    CHECK_INT(ln_load_i64(nibbles, LINNET_I4, 0), -8);
    CHECK_INT(ln_load_i64(nibbles, LINNET_I4, 1), 3);
    CHECK_INT(ln_load_i64(nibbles, LINNET_U4, 3), 15);
    CHECK_TEXT(linnet_dtype_name(LINNET_BF16), "bf16");
}

static ln_tensor tensor(int dtype, int rank, int64_t a, int64_t b, int64_t c, int64_t d) {
    ln_tensor t = {.dtype = (uint8_t)dtype, .rank = (int8_t)rank, .dims = {a, b, c, d}};
    return t;
}

static void layouts(void) {
    ln_tensor t = tensor(LINNET_F32, 4, 2, 3, 5, 7);
    uint64_t bytes;
    ln_set_layout(&t, LN_LAYOUT_DENSE);
    CHECK(ln_is_dense(&t) && !ln_is_channels_last(&t));
    CHECK_INT(t.strides[0], 105);
    ln_set_layout(&t, LN_LAYOUT_CHANNELS_LAST);
    CHECK(!ln_is_dense(&t) && ln_is_channels_last(&t));
    CHECK_INT(t.strides[0], 105);
    CHECK_INT(t.strides[1], 1);
    CHECK_INT(t.strides[2], 21);
    CHECK_INT(t.strides[3], 3);
    t = tensor(LINNET_F32, 4, 2, 1, 5, 7); /* one channel: both layouts at once */
    ln_set_layout(&t, LN_LAYOUT_CHANNELS_LAST);
    CHECK(ln_is_dense(&t) && ln_is_channels_last(&t));
    t = tensor(LINNET_F32, 2, 2, 3, 0, 0); /* rank 2 has no channels-last */
    ln_set_layout(&t, LN_LAYOUT_CHANNELS_LAST);
    CHECK_INT(t.layout, LN_LAYOUT_DENSE);
    CHECK(ln_is_dense(&t) && !ln_is_channels_last(&t));

    t = tensor(LINNET_F32, 0, 0, 0, 0, 0);
    CHECK(ln_bytes(&t, &bytes) && bytes == 4);
    CHECK_INT(ln_count(&t), 1);
    t = tensor(LINNET_I8, 2, (int64_t)1 << 23, (int64_t)1 << 23, 0, 0);
    CHECK(ln_bytes(&t, &bytes) && bytes == LN_MOST_BYTES);
    t.dims[1]++;
    CHECK(!ln_bytes(&t, &bytes));
    t = tensor(LINNET_I8, 3, 0, INT64_MAX, INT64_MAX, 0); /* empty, but its strides would overflow */
    CHECK(!ln_bytes(&t, &bytes));
    t = tensor(LINNET_I8, 2, 0, 100, 0, 0);
    CHECK(ln_bytes(&t, &bytes) && bytes == 0);
    t.dims[1] = -1;
    CHECK(!ln_bytes(&t, &bytes));
    CHECK_INT(ln_count(&t), -1);
    CHECK_INT(ln_axis(-1, 4), 3);
    CHECK_INT(ln_axis(-5, 4), -1);
    CHECK_INT(ln_axis(4, 4), -1);
    CHECK_INT(ln_axis(INT64_MIN, 4), -1);
}

int main(void) {
    every_half(LINNET_F16, 5, 10);
    every_half(LINNET_BF16, 8, 7);
    half_limits();
    conversions();
    layouts();
    return check_end("test_types");
}
