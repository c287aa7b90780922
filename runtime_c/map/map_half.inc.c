/* map_half.inc.c - stores f32 tiles as f16 or bf16, with limits and the addition of a residual (ln_map_isa.half_sum).
 * Included by map_strip.inc.c. */

/* The rows of half_sum below. Callers pass f16 and adds as constants, so each combination is compiled by itself. */
static ALWAYS_INLINE void LN_SIMD_NAME(half_rows)(const bool f16, const bool adds, const float *x, int64_t x_stride,
                                                  const uint16_t *added, uint16_t *y, int64_t y_stride, int64_t rows,
                                                  int64_t columns, vf low, vf high) {
    for (const uint16_t *row = added; rows > 0; rows--, x += x_stride, y += y_stride) {
        added = row;
        if (adds) row += y_stride; /* arithmetic on NULL is undefined */
        int64_t i = 0;
        /* With this order of operands, NaN stays NaN. */
#ifdef LN_SIMD_NEON
        for (; f16 && i + 4 * VF_WIDTH <= columns; i += 4 * VF_WIDTH) {
            vf v[4];
            LN_SIMD_UNROLL
            for (int k = 0; k < 4; k++) {
                v[k] = vf_load(x + i + k * VF_WIDTH);
                if (adds) v[k] = vf_add(v[k], vf_load_f16(added + i + k * VF_WIDTH));
                v[k] = vminq_f32(high, vmaxq_f32(low, v[k]));
            }
            vst1q_u16(y + i, vf_as_f16(v[0], v[1]));
            vst1q_u16(y + i + 2 * VF_WIDTH, vf_as_f16(v[2], v[3]));
        }
#endif
        for (; i + VF_WIDTH <= columns; i += VF_WIDTH) {
            vf v = vf_load(x + i);
            if (adds) v = vf_add(v, f16 ? vf_load_f16(added + i) : vf_load_bf16(added + i));
            v = vf_min(high, vf_max(low, v));
            if (f16)
                vf_store_f16(y + i, v);
            else
                vf_store_bf16(y + i, v);
        }
        if (i == columns) continue;
        const int n = (int)(columns - i);
        vf v = vf_load_partial(x + i, n);
        if (adds) v = vf_add(v, f16 ? vf_load_f16_partial(added + i, n) : vf_load_bf16_partial(added + i, n));
        v = vf_min(high, vf_max(low, v));
        if (f16)
            vf_store_f16_partial(y + i, n, v);
        else
            vf_store_bf16_partial(y + i, n, v);
    }
}

static void LN_SIMD_NAME(half_sum)(int dtype, const float *x, int64_t x_stride, const uint16_t *added, uint16_t *y,
                                   int64_t y_stride, int64_t rows, int64_t columns, float low, float high) {
    const vf l = vf_set1(low), h = vf_set1(high);
    if (x_stride == columns && y_stride == columns) columns *= rows, rows = 1; /* rows of few columns are one line */
    if (dtype != LINNET_F16)
        LN_SIMD_NAME(half_rows)(false, added != NULL, x, x_stride, added, y, y_stride, rows, columns, l, h);
    else if (added != NULL)
        LN_SIMD_NAME(half_rows)(true, true, x, x_stride, added, y, y_stride, rows, columns, l, h);
    else
        LN_SIMD_NAME(half_rows)(true, false, x, x_stride, NULL, y, y_stride, rows, columns, l, h);
}
