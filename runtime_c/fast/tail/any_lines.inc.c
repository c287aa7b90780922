/* any_lines.inc.c - lines of any dtype as lines of i32, and lines of f32 as lines of any dtype that lie apart: what the
 * depthwise and the transposed convolution convert beside any.inc.c. */
#ifndef LN_ANY_LINES_INC_C
#define LN_ANY_LINES_INC_C
#include "fast/tail/any.inc.c"

/* Converts integers to i32 and subtracts `zero`. */
static void any_widen_integer(int dtype, const void *p, int64_t at, int64_t n, int32_t zero, int32_t *out) {
    vi less = vi_set1(zero);
    int64_t i = 0;
    for (; dtype == LINNET_I8 && i + VF_WIDTH <= n; i += VF_WIDTH)
        vi_store(out + i, vi_sub(vi_load_i8((const int8_t *)p + at + i), less));
    for (; dtype == LINNET_I16 && i + VF_WIDTH <= n; i += VF_WIDTH)
        vi_store(out + i, vi_sub(vi_load_i16((const int16_t *)p + at + i), less));
    for (; i < n; i += VF_WIDTH) {
        int count = (int)ln_min(VF_WIDTH, n - i);
        vi v = vi_sub(vi_from_vf(any_load_other(dtype, p, at + i, count)), less);
        if (count == VF_WIDTH)
            vi_store(out + i, v);
        else
            vi_store_partial(out + i, count, v);
    }
}

/* Converts `rows` contiguous lines to lines that are `stride` elements apart. */
static void any_narrow_rows(int dtype, const float *x, int64_t rows, int64_t n, void *p, int64_t stride) {
    if (stride == n)
        any_narrow(dtype, x, rows * n, p, 0);
    else
        for (int64_t i = 0; i < rows; i++) any_narrow(dtype, x + i * n, n, p, i * stride);
}

#endif
