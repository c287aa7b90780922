/* map.inc.c - the arithmetic of map strips, once per ISA: loops that the compiler vectorizes.
 * The opcodes here run over whole groups of 16, so they need no tail. map_rest.c computes the others one by one. */
#include "map/map_program.h"
#include "map/map_rest.h"
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
        for (int i = 0; i < n; i++) large |= (ln_bits_f(qa[i]) & 0x7fffffffu) >= 0x49800000u;                          \
        if (large) break;                                                                                              \
        LN_LOOP for (unsigned i = 0; i < m; i++) qy[i] = small(qa[i]);                                                 \
        return;                                                                                                        \
    }

#if defined(LN_SIMD_SCALAR)
/* In plain C, n is not rounded up to whole groups: that would gain nothing, and the reference passes single elements.
 */
#define LN_GROUPS(n) ((unsigned)(n))
#else
#define LN_GROUPS(n) (((unsigned)(n) + 15u) & ~15u)
#endif
static void LN_SIMD_NAME(map_arithmetic)(const ln_map_step *s, int n, const void *pa, const void *pb, const void *pc,
                                         void *py) {
    unsigned m = LN_GROUPS(n);
    if (s->type == LINNET_I64 || s->type == LINNET_F64) { /* nothing below is for 64 bits */
        ln_map_rest(s, n, pa, pb, pc, py);
        return;
    }
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
    ln_map_rest(s, n, pa, pb, pc, py);
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
