/* map.inc.c - the arithmetic of map strips, once per ISA level and compiled for speed: loops that the compiler
 * vectorises. Every opcode runs over whole groups of 16, and needs no tail. */
#include "simd/map_program.h"
#include "simd/math.h"

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* some loops (fmod, integer division) have no vector form */
#define LN_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define LN_LOOP _Pragma("GCC ivdep") /* registers are the same array or apart, so lanes are independent */
#endif

#if defined(__GNUC__) && !defined(LN_SIMD_SCALAR) && !defined(LN_SIMD_SSE2) /* those are small rather than fast */
#define ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define ALWAYS_INLINE inline
#endif

/* ---- what is hot in loads and stores ---- */

/* n numbers from `first` on, `stride` (0 or 1) apart. */
void LN_SIMD_NAME(ln_map_count)(int type, int64_t first, int64_t stride, int n, void *y) {
    int32_t from = (int32_t)first, step = (int32_t)stride;
    bool small = first + n <= INT32_MAX;
    if (small && type == LINNET_F32)
        LN_LOOP for (int i = 0; i < n; i++)((float *)y)[i] = (float)(from + i * step);
    else if (small && type == LINNET_I32)
        LN_LOOP for (int i = 0; i < n; i++)((int32_t *)y)[i] = from + i * step;
    else
        for (int i = 0; i < n; i++) {
            int64_t value = first + i * stride;
            ln_map_load_any(LINNET_I64, type, &value, 0, 0, 1, (char *)y + i * (int64_t)ln_dtype_size(type));
        }
}

/* Integers to neighbouring narrower ones, cut, or to bool. */
void LN_SIMD_NAME(ln_map_narrow)(int dtype, const int32_t *w, int n, void *y) {
    if (dtype == LINNET_BOOL)
        LN_LOOP for (int i = 0; i < n; i++)((uint8_t *)y)[i] = w[i] != 0;
    else if (dtype == LINNET_I8 || dtype == LINNET_U8)
        LN_LOOP for (int i = 0; i < n; i++)((uint8_t *)y)[i] = (uint8_t)w[i];
    else
        LN_LOOP for (int i = 0; i < n; i++)((uint16_t *)y)[i] = (uint16_t)w[i];
}

/* A float as an integer, without the zero point. */
static ALWAYS_INLINE vi LN_SIMD_NAME(rounded)(const int how, vf v, vf scale, vf inverse, vf least, vf most) {
    if (how == LN_MAP_NEAREST) {
        v = vf_min(vf_max(v, least), most); /* NaN becomes low */
#if defined(LN_SIMD_NEON)
        /* Small ARM cores divide slowly. Markstein (1990): the first correction leaves less than one place, the second
         * the quotient itself. */
        vf q = vf_mul(v, inverse), minus = vf_neg(scale);
        q = vf_fma(vf_fma(q, minus, v), inverse, q);
        return vi_from_vf(vf_fma(vf_fma(q, minus, v), inverse, q));
#else
        return vi_from_vf(vf_div(v, scale));
#endif
    }
    if (how == LN_MAP_CUT) return vi_trunc_vf(vf_min(vf_max(vf_select(vf_eq(v, v), v, vf_zero()), least), most));
    v = how == LN_MAP_PRODUCT ? vf_mul(v, inverse) : vf_div(v, scale);
    return vi_from_vf(vf_min(vf_max(v, least), most));
}

static ALWAYS_INLINE void LN_SIMD_NAME(store_all)(const int how, const ln_map_step *s, int dtype, const float *a, int n,
                                                  char *p) {
    vf scale = vf_set1(s->scale), inverse = vf_set1(s->inverse), least = vf_set1(s->least), most = vf_set1(s->most);
    vi zero = vi_set1(s->zero);
    size_t size = dtype == LINNET_I8 || dtype == LINNET_U8 ? 1 : 2;
    for (int i = 0; i < n; i += VF_WIDTH) {
        int left = n - i;
        vf v = left >= VF_WIDTH ? vf_load(a + i) : vf_load_partial(a + i, left);
        vi q = vi_add(LN_SIMD_NAME(rounded)(how, v, scale, inverse, least, most), zero);
        uint16_t lanes[VF_WIDTH];
        void *to = left >= VF_WIDTH ? (void *)(p + (size_t)i * size) : (void *)lanes;
        switch (dtype) {
        case LINNET_I8: vi_store_i8(to, q); break;
        case LINNET_U8: vi_store_u8(to, q); break;
        case LINNET_I16: vi_store_i16(to, q); break;
        default: vi_store_u16(to, q); break;
        }
        if (left < VF_WIDTH) memcpy(p + (size_t)i * size, lanes, (size_t)left * size);
    }
}

/* n floats as neighbouring small integers. */
void LN_SIMD_NAME(ln_map_store_small)(const ln_map_step *s, int dtype, const float *a, int n, char *p) {
    switch (s->how) {
    case LN_MAP_NEAREST: LN_SIMD_NAME(store_all)(LN_MAP_NEAREST, s, dtype, a, n, p); return;
    case LN_MAP_PRODUCT: LN_SIMD_NAME(store_all)(LN_MAP_PRODUCT, s, dtype, a, n, p); return;
    case LN_MAP_QUOTIENT: LN_SIMD_NAME(store_all)(LN_MAP_QUOTIENT, s, dtype, a, n, p); return;
    default: LN_SIMD_NAME(store_all)(LN_MAP_CUT, s, dtype, a, n, p); return;
    }
}

/* ---- arithmetic ---- */

#define TYPE_f LINNET_F32
#define TYPE_i LINNET_I32
#define TYPE_d LINNET_F64
#define TYPE_l LINNET_I64
#define CTYPE_f float
#define CTYPE_i int32_t
#define CTYPE_d double
#define CTYPE_l int64_t
#define ROW_f(...) __VA_ARGS__
#define ROW_d(...)
#define ROW_l(...)
#define UNARY(opcode, x, z, expression)                                                                                \
    ROW_##x(case LN_MAP_##opcode * 16 + TYPE_##x : {                                                                   \
        const CTYPE_##x *qa = (const CTYPE_##x *)pa;                                                                   \
        CTYPE_##z *qy = (CTYPE_##z *)py;                                                                               \
        LN_LOOP for (unsigned i = 0; i < m; i++) {                                                                     \
            CTYPE_##x a = qa[i];                                                                                       \
            qy[i] = (expression);                                                                                      \
        }                                                                                                              \
        return;                                                                                                        \
    })
#define BINARY(opcode, x, z, expression)                                                                               \
    ROW_##x(case LN_MAP_##opcode * 16 + TYPE_##x : {                                                                   \
        const CTYPE_##x *qa = (const CTYPE_##x *)pa, *qb = (const CTYPE_##x *)pb;                                      \
        CTYPE_##z *qy = (CTYPE_##z *)py;                                                                               \
        LN_LOOP for (unsigned i = 0; i < m; i++) {                                                                     \
            CTYPE_##x a = qa[i], b = qb[i];                                                                            \
            qy[i] = (expression);                                                                                      \
        }                                                                                                              \
        return;                                                                                                        \
    })
#define RARE_UNARY(opcode, x, z, expression)
#define RARE_BINARY(opcode, x, z, expression)
/* AVX-512 keeps what gains from it over AVX2, and SSE2, the level of processors before 2013, what networks live on. */
#if defined(LN_SIMD_AVX512) || defined(LN_SIMD_SSE2)
#define LN_MAP_FEW
#define ROW_i(...)
#define SELDOM_UNARY(opcode, x, z, expression)
#define SELDOM_BINARY(opcode, x, z, expression)
#define TRIG(opcode, full, small)
#else
#define ROW_i(...) __VA_ARGS__
#define SELDOM_UNARY UNARY
#define SELDOM_BINARY BINARY
/* All lanes by the short range reduction; a strip with a large one goes to map_rest.c. */
#define TRIG(opcode, full, small)                                                                                      \
    case LN_MAP_##opcode * 16 + LINNET_F32: {                                                                          \
        const float *qa = (const float *)pa;                                                                           \
        float *qy = (float *)py;                                                                                       \
        uint32_t large = 0;                                                                                            \
        for (unsigned i = 0; i < m; i++) large |= (ln_bits_f(qa[i]) & 0x7fffffffu) >= 0x49800000u;                     \
        if (large) break;                                                                                              \
        LN_LOOP for (unsigned i = 0; i < m; i++) qy[i] = small(qa[i]);                                                 \
        return;                                                                                                        \
    }
#endif

#if defined(LN_SIMD_SCALAR)
#define LN_GROUPS(n) ((unsigned)(n)) /* nothing to gain, and the reference calls with single elements */
#else
#define LN_GROUPS(n) (((unsigned)(n) + 15u) & ~15u)
#endif
#if defined(LN_SIMD_AVX512)
#define LN_MAP_OTHERWISE ln_map_arithmetic__avx2
#elif defined(LN_SIMD_SSE2)
#define LN_MAP_OTHERWISE ln_map_arithmetic__scalar
#else
#define LN_MAP_OTHERWISE ln_map_rest
#endif
void LN_SIMD_NAME(ln_map_arithmetic)(const ln_map_step *s, int n, const void *pa, const void *pb, const void *pc,
                                     void *py) {
    unsigned m = LN_GROUPS(n);
    switch (s->code * 16 + s->type) {
#include "simd/map_table.h"
    case LN_MAP_SELECT * 16 + LINNET_F32:
    case LN_MAP_SELECT * 16 + LINNET_I32: {
        const int32_t *qa = pa, *qb = pb, *qc = pc;
        int32_t *qy = py;
        LN_LOOP for (unsigned i = 0; i < m; i++) {
            int32_t b = qb[i], c = qc[i];
            qy[i] = qa[i] != 0 ? b : c;
        }
        return;
    }
#ifndef LN_MAP_FEW
    case LN_MAP_CAST * 16 + LINNET_F32:
        if (s->from == LINNET_I32) {
            LN_LOOP for (unsigned i = 0; i < m; i++)((float *)py)[i] = (float)((const int32_t *)pa)[i];
            return;
        }
        break;
    case LN_MAP_CAST * 16 + LINNET_I32:
        if (s->from == LINNET_F32) {
            LN_LOOP for (unsigned i = 0; i < m; i++)((int32_t *)py)[i] = ln_f_to_i(((const float *)pa)[i]);
            return;
        }
        break;
#endif
#if defined(VI_FIXED_MULTIPLY) && !defined(LN_MAP_FEW)
    case LN_MAP_FIXED_MULTIPLY * 16 + LINNET_I32: {
        if (s->shift < -31 || s->shift > 31) break;
        vi fixed = vi_set1(s->multiplier), shift = vi_set1(-s->shift);
        for (unsigned i = 0; i < m; i += VF_WIDTH)
            vi_store((int32_t *)py + i, vi_fixed_multiply(vi_load((const int32_t *)pa + i), fixed, shift));
        return;
    }
#endif
    default: break;
    }
    LN_MAP_OTHERWISE(s, (int)m, pa, pb, pc, py);
}

#undef TYPE_f
#undef TYPE_i
#undef TYPE_d
#undef TYPE_l
#undef CTYPE_f
#undef CTYPE_i
#undef CTYPE_d
#undef CTYPE_l
#undef ROW_f
#undef ROW_i
#undef ROW_d
#undef ROW_l
#undef UNARY
#undef BINARY
#undef TRIG
#undef RARE_UNARY
#undef RARE_BINARY
#undef SELDOM_UNARY
#undef SELDOM_BINARY
#undef LN_GROUPS
