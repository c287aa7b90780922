/* map_rest.c - the parts of the strip interpreter that need no SIMD of their own: f64 and i64 registers, odd dtypes,
 * rare functions. The per-ISA files (map/map.inc.c) call these functions for everything that they do not implement. */
#include "map/map_rest.h"

#include "kernel/common/convert.h"
#include "kernel/common/inline.h"
#include "map/map_program.h"
#include "simd/math.h"

void ln_map_load_any(int dtype, int type, const void *data, int64_t offset, int64_t stride, int n, void *y) {
    for (int i = 0; i < n; i++) ln_convert_element(y, type, i, data, dtype, offset + i * stride);
}

void ln_map_store_any(int dtype, int type, const void *register_, int n, void *data, int64_t offset, int64_t stride) {
    for (int i = 0; i < n; i++) ln_convert_element(data, dtype, offset + i * stride, register_, type, i);
}

#define LOOP(type_y, pre, expression)                                                                                  \
    {                                                                                                                  \
        type_y *py = y;                                                                                                \
        for (int i = 0; i < n; i++) {                                                                                  \
            pre;                                                                                                       \
            py[i] = (type_y)(expression);                                                                              \
        }                                                                                                              \
        return;                                                                                                        \
    }
#define TYPE_f LINNET_F32
#define TYPE_d LINNET_F64
#define TYPE_i LINNET_I32
#define TYPE_l LINNET_I64
#define CTYPE_f float
#define CTYPE_d double
#define CTYPE_i int32_t
#define CTYPE_l int64_t
#define UNARY(opcode, x, z, expression)                                                                                \
    ROW_##x(case LN_MAP_##opcode * 16 +                                                                                \
            TYPE_##x : LOOP(CTYPE_##z, CTYPE_##x a = ((const CTYPE_##x *)pa)[i], expression))
#define BINARY(opcode, x, z, expression)                                                                               \
    ROW_##x(case LN_MAP_##opcode * 16 + TYPE_##x : LOOP(CTYPE_##z, CTYPE_##x a = ((const CTYPE_##x *)pa)[i];           \
                                                        CTYPE_##x b = ((const CTYPE_##x *)pb)[i], expression))
static void cast(const ln_map_step *s, int n, const void *pa, void *y) {
    switch (s->from * 16 + s->type) {
    case LINNET_F32 * 16 + LINNET_F64: LOOP(double, , ((const float *)pa)[i])
    case LINNET_F32 * 16 + LINNET_I64: LOOP(int64_t, , ln_f_to_l(((const float *)pa)[i]))
    case LINNET_F64 * 16 + LINNET_F32: LOOP(float, , ((const double *)pa)[i])
    case LINNET_F64 * 16 + LINNET_I32: LOOP(int32_t, , ln_d_to_i(((const double *)pa)[i]))
    case LINNET_F64 * 16 + LINNET_I64: LOOP(int64_t, , ln_d_to_l(((const double *)pa)[i]))
    case LINNET_I32 * 16 + LINNET_F64: LOOP(double, , ((const int32_t *)pa)[i])
    case LINNET_I32 * 16 + LINNET_I64: LOOP(int64_t, , ((const int32_t *)pa)[i])
    case LINNET_I64 * 16 + LINNET_F32: LOOP(float, , ((const int64_t *)pa)[i])
    case LINNET_I64 * 16 + LINNET_F64: LOOP(double, , ((const int64_t *)pa)[i])
    case LINNET_I64 * 16 + LINNET_I32: LOOP(int32_t, , (uint32_t)(uint64_t)((const int64_t *)pa)[i])
    case LINNET_F64 * 16 + LINNET_F64:
    case LINNET_I64 * 16 + LINNET_I64: LOOP(int64_t, , ((const int64_t *)pa)[i])
    default: LOOP(int32_t, , ((const int32_t *)pa)[i])
    }
}

/* i64 registers. This function calls no other one, so that short strips take little time. */
#define ROW_l(...) __VA_ARGS__
#define ROW_d(...)
#define ROW_f(...)
#define ROW_i(...)
#define RARE_UNARY(opcode, x, z, expression)
#define RARE_BINARY(opcode, x, z, expression)
#define TRIG(opcode, full, small)
static LN_NEVER_INLINE void compute_longs(const ln_map_step *step, int n, const void *pa, const void *pb,
                                          const void *pc, void *y) {
    switch (step->code * 16 + step->type) {
#include "map/map_table.h"
    case LN_MAP_SELECT * 16 + LINNET_I64:
        LOOP(int64_t, , ((const int32_t *)pa)[i] != 0 ? ((const int64_t *)pb)[i] : ((const int64_t *)pc)[i])
    default: return;
    }
}
#undef ROW_l
#undef ROW_d
#undef RARE_UNARY
#undef RARE_BINARY
#undef TRIG

#define ROW_l(...)
#define ROW_d(...) __VA_ARGS__
#define RARE_UNARY(opcode, x, z, expression)                                                                           \
    case LN_MAP_##opcode * 16 + TYPE_##x: LOOP(CTYPE_##z, CTYPE_##x a = ((const CTYPE_##x *)pa)[i], expression)
#define RARE_BINARY(opcode, x, z, expression)                                                                          \
    case LN_MAP_##opcode * 16 + TYPE_##x:                                                                              \
        LOOP(CTYPE_##z, CTYPE_##x a = ((const CTYPE_##x *)pa)[i]; CTYPE_##x b = ((const CTYPE_##x *)pb)[i], expression)
#define TRIG(opcode, full, small) RARE_UNARY(opcode, f, f, full(a))
static LN_NEVER_INLINE void compute_others(const ln_map_step *step, int n, const void *pa, const void *pb,
                                           const void *pc, void *y) {
    switch (step->code * 16 + step->type) {
#include "map/map_table.h"
    case LN_MAP_SELECT * 16 + LINNET_F64:
        LOOP(int64_t, , ((const int32_t *)pa)[i] != 0 ? ((const int64_t *)pb)[i] : ((const int64_t *)pc)[i])
    case LN_MAP_FIXED_MULTIPLY * 16 + LINNET_I32:
        LOOP(int32_t, , ln_map_fixed_multiply(((const int32_t *)pa)[i], step->multiplier, step->shift))
    case LN_MAP_FIXED_MULTIPLY_SINGLE * 16 + LINNET_I32:
        LOOP(int32_t, , ln_map_fixed_multiply_single(((const int32_t *)pa)[i], step->multiplier, step->shift))
    default: return;
    }
}

void ln_map_rest(const ln_map_step *step, int n, const void *pa, const void *pb, const void *pc, void *y) {
    if (step->code == LN_MAP_CAST)
        cast(step, n, pa, y);
    else if (step->type == LINNET_I64)
        compute_longs(step, n, pa, pb, pc, y);
    else
        compute_others(step, n, pa, pb, pc, y);
}
