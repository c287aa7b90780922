/* any.inc.c - converts vectors of f32 from and to every small storage type: f32 inline, the others in a function call.
 * Included by kernels that handle all dtypes with one loop. Needs simd/simd.h. */
#ifndef LN_ANY_INC
#define LN_ANY_INC

/* One instruction converts f16, so that the conversion may be inlined. */
#if defined(LN_SIMD_AVX2) || defined(LN_SIMD_AVX512)
#define LN_SIMD_QUICK_F16 1
#endif

/* Loads n elements of a type other than f32, from element i of p; the other lanes are 0. Not inlined, to keep the
 * library small. */
static LN_NEVER_INLINE vf any_load_other(int dtype, const void *p, int64_t i, int n) {
    const char *at = (const char *)p + i * (dtype == LINNET_I8 || dtype == LINNET_U8 ? 1 : 2);
    uint16_t lanes[VF_WIDTH] = {0};
    if (n < VF_WIDTH) {
        memcpy(lanes, at, (size_t)n * (dtype == LINNET_I8 || dtype == LINNET_U8 ? 1 : 2));
        at = (const char *)lanes;
    }
    switch (dtype) {
    case LINNET_F16: return vf_load_f16((const uint16_t *)(const void *)at);
    case LINNET_BF16: return vf_load_bf16((const uint16_t *)(const void *)at);
    case LINNET_I8: return vf_from_vi(vi_load_i8((const int8_t *)at));
    case LINNET_U8: return vf_from_vi(vi_load_u8((const uint8_t *)at));
    default: return vf_from_vi(vi_load_i16((const int16_t *)(const void *)at));
    }
}

/* Stores n elements of a type other than f32. Integers are rounded half to even and saturate; |v| < 2^31. */
static LN_NEVER_INLINE void any_store_other(int dtype, void *p, int64_t i, int n, vf v) {
    size_t size = dtype == LINNET_I8 || dtype == LINNET_U8 ? 1 : 2;
    char *to = (char *)p + i * (int64_t)size;
    uint16_t lanes[VF_WIDTH];
    void *at = n < VF_WIDTH ? (void *)lanes : (void *)to;
    switch (dtype) {
    case LINNET_F16: vf_store_f16(at, v); break;
    case LINNET_BF16: vf_store_bf16(at, v); break;
    case LINNET_I8: vi_store_i8(at, vi_from_vf(v)); break;
    case LINNET_U8: vi_store_u8(at, vi_from_vf(v)); break;
    default: vi_store_i16(at, vi_from_vf(v)); break;
    }
    if (n < VF_WIDTH) memcpy(to, lanes, (size_t)n * size);
}

/* Loads n elements as f32. `single` is a compile-time constant, which is true if the dtype is f32. */
static LN_ALWAYS_INLINE vf any_load(const bool single, int dtype, const void *p, int64_t i, int n) {
#ifdef LN_SIMD_QUICK_F16
    if (!single && dtype == LINNET_F16 && n == VF_WIDTH) return vf_load_f16((const uint16_t *)p + i);
#endif
    if (!single) return any_load_other(dtype, p, i, n);
    return n == VF_WIDTH ? vf_load((const float *)p + i) : vf_load_partial((const float *)p + i, n);
}

static LN_ALWAYS_INLINE void any_store(const bool single, int dtype, void *p, int64_t i, int n, vf v) {
#ifdef LN_SIMD_QUICK_F16
    if (!single && dtype == LINNET_F16 && n == VF_WIDTH) {
        vf_store_f16((uint16_t *)p + i, v);
        return;
    }
#endif
    if (!single)
        any_store_other(dtype, p, i, n, v);
    else if (n == VF_WIDTH)
        vf_store((float *)p + i, v);
    else
        vf_store_partial((float *)p + i, n, v);
}

/* Converts a line of n elements, from element `at` of p on, to f32. any_narrow converts it back. */
static void any_widen(int dtype, const void *p, int64_t at, int64_t n, float *out) {
    int64_t i = 0;
    if (dtype == LINNET_F32) {
        memcpy(out, (const float *)p + at, (size_t)n * sizeof *out);
        return;
    }
#ifdef LN_SIMD_NEON
    for (; dtype == LINNET_F16 && i + 4 * VF_WIDTH <= n; i += 4 * VF_WIDTH)
        vf_widen_f16((const uint16_t *)p + at + i, out + i);
#endif
    for (; dtype == LINNET_F16 && i + VF_WIDTH <= n; i += VF_WIDTH)
        vf_store(out + i, vf_load_f16((const uint16_t *)p + at + i));
    for (; dtype == LINNET_I8 && i + VF_WIDTH <= n; i += VF_WIDTH)
        vf_store(out + i, vf_from_vi(vi_load_i8((const int8_t *)p + at + i)));
    for (; i < n; i += VF_WIDTH) {
        int count = (int)ln_min(VF_WIDTH, n - i);
        vf v = any_load_other(dtype, p, at + i, count);
        if (count == VF_WIDTH)
            vf_store(out + i, v);
        else
            vf_store_partial(out + i, count, v);
    }
}

static void any_narrow(int dtype, const float *x, int64_t n, void *p, int64_t at) {
    int64_t i = 0;
    if (dtype == LINNET_F32) {
        memcpy((float *)p + at, x, (size_t)n * sizeof *x);
        return;
    }
#ifdef LN_SIMD_NEON
    for (; dtype == LINNET_F16 && i + 4 * VF_WIDTH <= n; i += 4 * VF_WIDTH) {
        uint16_t *to = (uint16_t *)p + at + i;
        vst1q_u16(to, vf_as_f16(vf_load(x + i), vf_load(x + i + VF_WIDTH)));
        vst1q_u16(to + 2 * VF_WIDTH, vf_as_f16(vf_load(x + i + 2 * VF_WIDTH), vf_load(x + i + 3 * VF_WIDTH)));
    }
#endif
    for (; dtype == LINNET_F16 && i + VF_WIDTH <= n; i += VF_WIDTH)
        vf_store_f16((uint16_t *)p + at + i, vf_load(x + i));
    for (; dtype == LINNET_I8 && i + VF_WIDTH <= n; i += VF_WIDTH)
        vi_store_i8((int8_t *)p + at + i, vi_from_vf(vf_load(x + i)));
    for (; i < n; i += VF_WIDTH) {
        int count = (int)ln_min(VF_WIDTH, n - i);
        any_store_other(dtype, p, at + i, count, count == VF_WIDTH ? vf_load(x + i) : vf_load_partial(x + i, count));
    }
}

#endif
