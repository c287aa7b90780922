/* any.inc.c - vectors of f32 from and to any small storage type. dtype is a constant where speed matters: callers are
 * LN_ALWAYS_INLINE functions that a switch instantiates (LN_ANY_SWITCH). */
#ifndef LN_ANY_INC
#define LN_ANY_INC

static LN_ALWAYS_INLINE vf any_load(int dtype, const void *p, int64_t i) {
    switch (dtype) {
    case LINNET_F32: return vf_load((const float *)p + i);
    case LINNET_F16: return vf_load_f16((const uint16_t *)p + i);
    case LINNET_BF16: return vf_load_bf16((const uint16_t *)p + i);
    case LINNET_I8: return vf_from_vi(vi_load_i8((const int8_t *)p + i));
    case LINNET_U8: return vf_from_vi(vi_load_u8((const uint8_t *)p + i));
    default: return vf_from_vi(vi_load_i16((const int16_t *)p + i));
    }
}

static LN_ALWAYS_INLINE vf any_load_partial(int dtype, const void *p, int64_t i, int n) {
    switch (dtype) {
    case LINNET_F32: return vf_load_partial((const float *)p + i, n);
    case LINNET_F16: return vf_load_f16_partial((const uint16_t *)p + i, n);
    case LINNET_BF16: return vf_load_bf16_partial((const uint16_t *)p + i, n);
    case LINNET_I8: return vf_from_vi(vi_load_i8_partial((const int8_t *)p + i, n));
    case LINNET_U8: return vf_from_vi(vi_load_u8_partial((const uint8_t *)p + i, n));
    default: return vf_from_vi(vi_load_i16_partial((const int16_t *)p + i, n));
    }
}

/* Integers round half to even and saturate; |v| < 2^31. */
static LN_ALWAYS_INLINE void any_store(int dtype, void *p, int64_t i, vf v) {
    switch (dtype) {
    case LINNET_F32: vf_store((float *)p + i, v); break;
    case LINNET_F16: vf_store_f16((uint16_t *)p + i, v); break;
    case LINNET_BF16: vf_store_bf16((uint16_t *)p + i, v); break;
    case LINNET_I8: vi_store_i8((int8_t *)p + i, vi_from_vf(v)); break;
    case LINNET_U8: vi_store_u8((uint8_t *)p + i, vi_from_vf(v)); break;
    default: vi_store_i16((int16_t *)p + i, vi_from_vf(v)); break;
    }
}

static LN_ALWAYS_INLINE void any_store_partial(int dtype, void *p, int64_t i, int n, vf v) {
    switch (dtype) {
    case LINNET_F32: vf_store_partial((float *)p + i, n, v); break;
    case LINNET_F16: vf_store_f16_partial((uint16_t *)p + i, n, v); break;
    case LINNET_BF16: vf_store_bf16_partial((uint16_t *)p + i, n, v); break;
    case LINNET_I8: vi_store_i8_partial((int8_t *)p + i, n, vi_from_vf(v)); break;
    case LINNET_U8: vi_store_u8_partial((uint8_t *)p + i, n, vi_from_vf(v)); break;
    default: vi_store_i16_partial((int16_t *)p + i, n, vi_from_vf(v)); break;
    }
}

#define LN_ANY_SWITCH(dtype, function, ...)                                                                            \
    switch (dtype) {                                                                                                   \
    case LINNET_F32: function(LINNET_F32, __VA_ARGS__); break;                                                         \
    case LINNET_F16: function(LINNET_F16, __VA_ARGS__); break;                                                         \
    case LINNET_BF16: function(LINNET_BF16, __VA_ARGS__); break;                                                       \
    case LINNET_I8: function(LINNET_I8, __VA_ARGS__); break;                                                           \
    case LINNET_U8: function(LINNET_U8, __VA_ARGS__); break;                                                           \
    default: function(LINNET_I16, __VA_ARGS__); break;                                                                 \
    }

/* A line of n elements (from element `at` of p) to f32, and back. */
static void any_widen(int dtype, const void *p, int64_t at, int64_t n, float *out) {
    int64_t i = 0;
    for (; i + VF_WIDTH <= n; i += VF_WIDTH)
        vf_store(out + i, any_load(dtype, p, at + i));
    if (i < n)
        vf_store_partial(out + i, (int)(n - i), any_load_partial(dtype, p, at + i, (int)(n - i)));
}

static void any_narrow(int dtype, const float *x, int64_t n, void *p, int64_t at) {
    int64_t i = 0;
    for (; i + VF_WIDTH <= n; i += VF_WIDTH)
        any_store(dtype, p, at + i, vf_load(x + i));
    if (i < n)
        any_store_partial(dtype, p, at + i, (int)(n - i), vf_load_partial(x + i, (int)(n - i)));
}

#endif
