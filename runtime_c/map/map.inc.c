/* map.inc.c - the arithmetic of map strips, once per ISA: loops that the compiler vectorises.
 * Every opcode runs over whole groups of 16, so it needs no tail. */
#include "map/map_program.h"
#include "simd/math.h"

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* some loops (fmod, integer division) have no vector form */
#define LN_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define LN_LOOP _Pragma("GCC ivdep") /* registers are identical or disjoint, so lanes are independent */
#endif

#if defined(__GNUC__) && !defined(LN_SIMD_SCALAR)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define ALWAYS_INLINE inline
#endif

#define TYPE_f LINNET_F32
#define TYPE_i LINNET_I32
#define TYPE_d LINNET_F64
#define TYPE_l LINNET_I64
#define CTYPE_f float
#define CTYPE_i int32_t
#define CTYPE_d double
#define CTYPE_l int64_t
#define ROW_f(...) __VA_ARGS__
#define ROW_i(...) __VA_ARGS__
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
/* Computes all lanes with the short range reduction. A strip with a large argument is computed by map_rest.c. */
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

#if defined(LN_SIMD_SCALAR)
/* Here n is not rounded up: it would gain nothing, and the reference passes single elements. */
#define LN_GROUPS(n) ((unsigned)(n))
#else
#define LN_GROUPS(n) (((unsigned)(n) + 15u) & ~15u)
#endif
#if defined(LN_SIMD_AVX512)
/* ln_exp_f and ln_sigmoid_f with the same bits. VSCALEFPS multiplies by 2^n in one rounding, and the maximum of two
 * numbers is the second one if that is not a number. */
static inline __m512 map_exp_512(__m512 c) {
    const __m512 large = _mm512_set1_ps(12582912.0f);
    const __m512 n = _mm512_sub_ps(_mm512_add_ps(_mm512_mul_ps(c, _mm512_set1_ps(0x1.715476p+0f)), large), large);
    const __m512 r = _mm512_sub_ps(_mm512_sub_ps(c, _mm512_mul_ps(n, _mm512_set1_ps(0x1.62e4p-1f))),
                                   _mm512_mul_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f)));
    __m512 p = _mm512_set1_ps(0x1.6db4e6p-10f);
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(0x1.123be0p-7f));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(0x1.55545ep-5f));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(0x1.55548ep-3f));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(0x1.000000p-1f));
    p = _mm512_add_ps(_mm512_add_ps(_mm512_mul_ps(_mm512_mul_ps(p, r), r), r), _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

static inline __m512 map_sigmoid_512(__m512 x) {
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 e = map_exp_512(_mm512_max_ps(_mm512_set1_ps(-105.0f), _mm512_or_ps(x, _mm512_set1_ps(-0.0f))));
    const __m512 s = _mm512_div_ps(one, _mm512_add_ps(one, e));
    return _mm512_mask_mul_ps(s, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ), e, s);
}
#endif

static void LN_SIMD_NAME(map_arithmetic)(const ln_map_step *s, int n, const void *pa, const void *pb, const void *pc,
                                         void *py) {
    unsigned m = LN_GROUPS(n);
#if defined(LN_SIMD_AVX512)
    if ((s->code == LN_MAP_SIGMOID || s->code == LN_MAP_EXP) && s->type == LINNET_F32) {
        const __m512 least = _mm512_set1_ps(-105.0f), most = _mm512_set1_ps(89.5f);
        for (unsigned i = 0; i < m; i += 16) {
            const __m512 x = _mm512_loadu_ps((const float *)pa + i);
            _mm512_storeu_ps((float *)py + i, s->code == LN_MAP_SIGMOID
                                                  ? map_sigmoid_512(x)
                                                  : map_exp_512(_mm512_max_ps(least, _mm512_min_ps(most, x))));
        }
        return;
    }
#endif
    switch (s->code * 16 + s->type) {
#include "map/map_table.h"
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
#if defined(VI_FIXED_MULTIPLY)
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
    ln_map_rest(s, (int)m, pa, pb, pc, py);
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
#undef LN_GROUPS
