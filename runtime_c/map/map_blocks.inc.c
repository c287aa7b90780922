/* map_blocks.inc.c - runs consecutive simple steps of a map strip block by block. A block is 16 vectors, whose values
 * stay in vector registers from step to step. map_strip.inc.c includes this file for ISAs with enough registers. */

/* A run is a sequence of steps that are executed block by block. In a strip of fewer than LEAST_RUN elements, preparing
 * a run takes longer than it saves. */
enum { BLOCK = 16 * VF_WIDTH, LEAST_RUN = 2 * BLOCK, MOST_RUN_STEPS = 24 };

/* The kinds of steps of a block. SAME: all elements of the second operand are equal. */
enum {
    BLOCK_NONE, /* an opcode that blocks cannot do */
    BLOCK_END,
    BLOCK_FETCH,
    BLOCK_KEEP,
    BLOCK_LOAD_I8,
    BLOCK_LOAD_U8,
    BLOCK_LOAD_I16,
    BLOCK_LOAD_U16,
    BLOCK_LOAD_F16,
    BLOCK_LOAD_BF16,
    BLOCK_DEQUANTIZE,
    BLOCK_QUANTIZE,
    BLOCK_STORE_8,
    BLOCK_STORE_16,
    BLOCK_STORE_F16,
    BLOCK_STORE_BF16,
    BLOCK_SELECT,
    BLOCK_FIXED,
    BLOCK_ABS,
    BLOCK_NEG,
    BLOCK_SIGN,
    BLOCK_ROUND,
    BLOCK_TRUNC,
    BLOCK_TO_FLOAT,
    BLOCK_TO_INTEGER,
    BLOCK_BINARY, /* from here on, each kind has a variant SAME, with the number kind + 1 */
    BLOCK_ADD_F = BLOCK_BINARY,
    BLOCK_SUB_F = BLOCK_BINARY + 2,
    BLOCK_MUL_F = BLOCK_BINARY + 4,
    BLOCK_DIV_F = BLOCK_BINARY + 6,
    BLOCK_MIN_F = BLOCK_BINARY + 8,
    BLOCK_MAX_F = BLOCK_BINARY + 10,
    BLOCK_LT_F = BLOCK_BINARY + 12,
    BLOCK_LE_F = BLOCK_BINARY + 14,
    BLOCK_GT_F = BLOCK_BINARY + 16,
    BLOCK_GE_F = BLOCK_BINARY + 18,
    BLOCK_EQ_F = BLOCK_BINARY + 20,
    BLOCK_ADD_I = BLOCK_BINARY + 22,
    BLOCK_SUB_I = BLOCK_BINARY + 24,
    BLOCK_MUL_I = BLOCK_BINARY + 26,
    BLOCK_MIN_I = BLOCK_BINARY + 28,
    BLOCK_MAX_I = BLOCK_BINARY + 30
};

/* One step of a run. The pointers are those of the strip's first element. */
typedef struct map_run_step {
    const ln_map_step *step;
    int kind;
    int dtype; /* of a load or store: the dtype of the elements in memory */
    bool same; /* all elements of b are equal */
    const char *a, *b, *c;
    char *y; /* where the step writes: a register, or memory */
} map_run_step;

typedef struct map_run {
    map_run_step steps[MOST_RUN_STEPS];
    int n_steps;
    int n;     /* elements of the strip */
    int whole; /* the elements of the strip that are in whole blocks */
} map_run;

typedef struct map_block {
    int kind;
    const ln_map_step *step;
    const char *p, *q; /* the addresses that the step reads or writes: registers or memory */
} map_block;

#define F(x) vi_as_vf(x)
#define I(x) vf_as_vi(x)
#define AT(p, k) vi_load((const int32_t *)(const void *)(p) + (k) * VF_WIDTH)
#define EACH(X, ...)                                                                                                   \
    X(0, v0, __VA_ARGS__)                                                                                              \
    X(1, v1, __VA_ARGS__)                                                                                              \
    X(2, v2, __VA_ARGS__)                                                                                              \
    X(3, v3, __VA_ARGS__)                                                                                              \
    X(4, v4, __VA_ARGS__)                                                                                              \
    X(5, v5, __VA_ARGS__)                                                                                              \
    X(6, v6, __VA_ARGS__)                                                                                              \
    X(7, v7, __VA_ARGS__)                                                                                              \
    X(8, v8, __VA_ARGS__)                                                                                              \
    X(9, v9, __VA_ARGS__)                                                                                              \
    X(10, v10, __VA_ARGS__)                                                                                            \
    X(11, v11, __VA_ARGS__)                                                                                            \
    X(12, v12, __VA_ARGS__)                                                                                            \
    X(13, v13, __VA_ARGS__)                                                                                            \
    X(14, v14, __VA_ARGS__)                                                                                            \
    X(15, v15, __VA_ARGS__)
#define ON(k, v, ...)                                                                                                  \
    {                                                                                                                  \
        const vi a = v;                                                                                                \
        v = (__VA_ARGS__);                                                                                             \
    }
#define ALL(...) EACH(ON, __VA_ARGS__)
#define WITH(k, v, ...)                                                                                                \
    {                                                                                                                  \
        const vi a = v, b = AT(pb, k);                                                                                 \
        v = (__VA_ARGS__);                                                                                             \
    }
#define UNARY_CASE(kind, ...)                                                                                          \
    case kind: ALL(__VA_ARGS__) break;
#define SAME_CASE(kind, ...)                                                                                           \
    case kind + 1: {                                                                                                   \
        const vi b = AT(q->p, 0);                                                                                      \
        ALL(__VA_ARGS__)                                                                                               \
        break;                                                                                                         \
    }
#define EVERY_CASE(kind, ...)                                                                                          \
    case kind: {                                                                                                       \
        const char *pb = q->p + at * 4;                                                                                \
        EACH(WITH, __VA_ARGS__)                                                                                        \
        break;                                                                                                         \
    }
#define BINARY_CASE(kind, ...)                                                                                         \
    EVERY_CASE(kind, __VA_ARGS__)                                                                                      \
    SAME_CASE(kind, __VA_ARGS__)
#define TRUTH(mask) vi_select(mask, vi_set1(1), vi_zero())
/* The expressions of map_table.h: a < b || a != a ? a : b for the minimum, and > instead of < for the maximum. */
#define MIN_OF(a, b) I(vf_select(vm_or(vf_lt(F(a), F(b)), vm_not(vf_eq(F(a), F(a)))), F(a), F(b)))
#define MAX_OF(a, b) I(vf_select(vm_or(vf_gt(F(a), F(b)), vm_not(vf_eq(F(a), F(a)))), F(a), F(b)))
#define IF_NUMBER(a, ...) I(vf_select(vf_eq(F(a), F(a)), __VA_ARGS__, F(a)))
#define SIGN_OF(a)                                                                                                     \
    I(vf_select(vf_gt(F(a), vf_zero()), vf_set1(1.0f), vf_select(vf_lt(F(a), vf_zero()), vf_set1(-1.0f), F(a))))
#define FETCH(k, v, p) v = AT(p, k);
#define KEEP(k, v, p) vi_store((int32_t *)(void *)(uintptr_t)(p) + (k) * VF_WIDTH, v);
#define CHOOSE(k, v, ...) v = vi_select(vi_eq(v, vi_zero()), AT(pc, k), AT(pb, k));
#define LOAD_I16(k, v, p) v = vi_load_i16(p + (k) * VF_WIDTH);
#define LOAD_U16(k, v, p) v = vi_load_u16(p + (k) * VF_WIDTH);
#define LOAD_F16(k, v, p) v = I(vf_load_f16(p + (k) * VF_WIDTH));
#define LOAD_BF16(k, v, p) v = I(vf_load_bf16(p + (k) * VF_WIDTH));
#define STORE_F16(k, v, p) vf_store_f16(p + (k) * VF_WIDTH, F(v));
#define STORE_BF16(k, v, p) vf_store_bf16(p + (k) * VF_WIDTH, F(v));
#define WIDEN_BYTES(widen, p)                                                                                          \
    widen(p, &v0, &v1, &v2, &v3);                                                                                      \
    widen((p) + 4 * VF_WIDTH, &v4, &v5, &v6, &v7);                                                                     \
    widen((p) + 8 * VF_WIDTH, &v8, &v9, &v10, &v11);                                                                   \
    widen((p) + 12 * VF_WIDTH, &v12, &v13, &v14, &v15);
#define ROUNDED(how) vi_add(LN_SIMD_NAME(rounded)(how, F(a), scale, inverse, least, most), zero)

/* Hides the address from the compiler, which would otherwise keep one more variable for each access below. */
#define BLOCK_OPAQUE(at) __asm__("" : "+r"(at))

/* Runs the steps over elements [0, n) of the strip; n is a multiple of BLOCK. */
static void map_blocks(const map_block *blocks, int n) {
    vi v0 = vi_zero(), v1 = v0, v2 = v0, v3 = v0, v4 = v0, v5 = v0, v6 = v0, v7 = v0;
    vi v8 = v0, v9 = v0, v10 = v0, v11 = v0, v12 = v0, v13 = v0, v14 = v0, v15 = v0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        for (const map_block *q = blocks;; q++) {
            BLOCK_OPAQUE(at);
            const ln_map_step *s = q->step;
            switch (q->kind) {
            case BLOCK_END: goto done;
            case BLOCK_FETCH: EACH(FETCH, q->p + at * 4) break;
            case BLOCK_KEEP:
                EACH(KEEP, q->p + at * 4) break;
                BINARY_CASE(BLOCK_ADD_F, I(vf_add(F(a), F(b))))
                BINARY_CASE(BLOCK_SUB_F, I(vf_sub(F(a), F(b))))
                BINARY_CASE(BLOCK_MUL_F, I(vf_mul(F(a), F(b))))
                BINARY_CASE(BLOCK_DIV_F, I(vf_div(F(a), F(b))))
                EVERY_CASE(BLOCK_MIN_F, MIN_OF(a, b))
                EVERY_CASE(BLOCK_MAX_F, MAX_OF(a, b))
                /* These give the same results as MIN_OF and MAX_OF, because map_blocks gets no NaN in b here. */
                SAME_CASE(BLOCK_MIN_F, I(vf_select(vf_le(F(b), F(a)), F(b), F(a))))
                SAME_CASE(BLOCK_MAX_F, I(vf_select(vf_ge(F(b), F(a)), F(b), F(a))))
                BINARY_CASE(BLOCK_LT_F, TRUTH(vf_lt(F(a), F(b))))
                BINARY_CASE(BLOCK_LE_F, TRUTH(vf_le(F(a), F(b))))
                BINARY_CASE(BLOCK_GT_F, TRUTH(vf_gt(F(a), F(b))))
                BINARY_CASE(BLOCK_GE_F, TRUTH(vf_ge(F(a), F(b))))
                BINARY_CASE(BLOCK_EQ_F, TRUTH(vf_eq(F(a), F(b))))
                BINARY_CASE(BLOCK_ADD_I, vi_add(a, b))
                BINARY_CASE(BLOCK_SUB_I, vi_sub(a, b))
                BINARY_CASE(BLOCK_MUL_I, vi_mul(a, b))
                BINARY_CASE(BLOCK_MIN_I, vi_min(a, b))
                BINARY_CASE(BLOCK_MAX_I, vi_max(a, b))
                UNARY_CASE(BLOCK_ABS, I(vf_abs(F(a))))
                UNARY_CASE(BLOCK_NEG, I(vf_neg(F(a))))
                UNARY_CASE(BLOCK_SIGN, SIGN_OF(a))
                UNARY_CASE(BLOCK_ROUND, IF_NUMBER(a, vf_round(F(a))))
                UNARY_CASE(BLOCK_TRUNC, IF_NUMBER(a, vf_trunc(F(a))))
                UNARY_CASE(BLOCK_TO_FLOAT, I(vf_from_vi(a)))
                UNARY_CASE(BLOCK_TO_INTEGER, vi_trunc_vf(F(a)))
            case BLOCK_SELECT: {
                const char *pb = q->p + at * 4, *pc = q->q + at * 4;
                EACH(CHOOSE, )
                break;
            }
            case BLOCK_FIXED: {
                const vi fixed = vi_set1(s->multiplier), shift = vi_set1(-s->shift);
                ALL(vi_fixed_multiply(a, fixed, shift))
                break;
            }
            case BLOCK_LOAD_I8: WIDEN_BYTES(vi_widen_i8, (const int8_t *)q->p + at) break;
            case BLOCK_LOAD_U8: WIDEN_BYTES(vi_widen_u8, (const uint8_t *)q->p + at) break;
            case BLOCK_LOAD_I16: EACH(LOAD_I16, (const int16_t *)(const void *)q->p + at) break;
            case BLOCK_LOAD_U16: EACH(LOAD_U16, (const uint16_t *)(const void *)q->p + at) break;
            case BLOCK_LOAD_F16: EACH(LOAD_F16, (const uint16_t *)(const void *)q->p + at) break;
            case BLOCK_LOAD_BF16: EACH(LOAD_BF16, (const uint16_t *)(const void *)q->p + at) break;
            case BLOCK_STORE_F16: EACH(STORE_F16, (uint16_t *)(uintptr_t)q->p + at) break;
            case BLOCK_STORE_BF16: EACH(STORE_BF16, (uint16_t *)(uintptr_t)q->p + at) break;
            case BLOCK_DEQUANTIZE: {
                const vi zero = vi_set1(s->zero);
                const vf scale = vf_set1(s->scale);
                ALL(I(vf_mul(vf_from_vi(vi_sub(a, zero)), scale)))
                break;
            }
            case BLOCK_QUANTIZE: {
                const vf scale = vf_set1(s->scale), inverse = vf_set1(s->inverse);
                const vf least = vf_set1(s->least), most = vf_set1(s->most);
                const vi zero = vi_set1(s->zero);
                if (s->how == LN_MAP_NEAREST) {
                    ALL(ROUNDED(LN_MAP_NEAREST))
                } else if (s->how == LN_MAP_PRODUCT) {
                    ALL(ROUNDED(LN_MAP_PRODUCT))
                } else if (s->how == LN_MAP_QUOTIENT) {
                    ALL(ROUNDED(LN_MAP_QUOTIENT))
                } else {
                    ALL(ROUNDED(LN_MAP_CUT))
                }
                break;
            }
            case BLOCK_STORE_8: {
                char *p = (char *)(uintptr_t)q->p + at;
                vi_narrow_8(p, v0, v1, v2, v3);
                vi_narrow_8(p + 4 * VF_WIDTH, v4, v5, v6, v7);
                vi_narrow_8(p + 8 * VF_WIDTH, v8, v9, v10, v11);
                vi_narrow_8(p + 12 * VF_WIDTH, v12, v13, v14, v15);
                break;
            }
            case BLOCK_STORE_16: {
                char *p = (char *)(uintptr_t)q->p + at * 2;
                vi_narrow_16(p, v0, v1);
                vi_narrow_16(p + 4 * VF_WIDTH, v2, v3);
                vi_narrow_16(p + 8 * VF_WIDTH, v4, v5);
                vi_narrow_16(p + 12 * VF_WIDTH, v6, v7);
                vi_narrow_16(p + 16 * VF_WIDTH, v8, v9);
                vi_narrow_16(p + 20 * VF_WIDTH, v10, v11);
                vi_narrow_16(p + 24 * VF_WIDTH, v12, v13);
                vi_narrow_16(p + 28 * VF_WIDTH, v14, v15);
                break;
            }
            default: __builtin_unreachable();
            }
        }
    done:;
    }
}

/* ---- a run ---- */

static int map_block_kind(const ln_map_step *s) {
    static const uint8_t floats[LN_MAP_LIMIT] = {
        [LN_MAP_ADD] = BLOCK_ADD_F,   [LN_MAP_SUB] = BLOCK_SUB_F,  [LN_MAP_MUL] = BLOCK_MUL_F,
        [LN_MAP_DIV] = BLOCK_DIV_F,   [LN_MAP_MIN] = BLOCK_MIN_F,  [LN_MAP_MAX] = BLOCK_MAX_F,
        [LN_MAP_LT] = BLOCK_LT_F,     [LN_MAP_LE] = BLOCK_LE_F,    [LN_MAP_GT] = BLOCK_GT_F,
        [LN_MAP_GE] = BLOCK_GE_F,     [LN_MAP_EQ] = BLOCK_EQ_F,    [LN_MAP_SELECT] = BLOCK_SELECT,
        [LN_MAP_ABS] = BLOCK_ABS,     [LN_MAP_NEG] = BLOCK_NEG,    [LN_MAP_SIGN] = BLOCK_SIGN,
        [LN_MAP_ROUND] = BLOCK_ROUND, [LN_MAP_TRUNC] = BLOCK_TRUNC};
    static const uint8_t integers[LN_MAP_LIMIT] = {[LN_MAP_ADD] = BLOCK_ADD_I, [LN_MAP_SUB] = BLOCK_SUB_I,
                                                   [LN_MAP_MUL] = BLOCK_MUL_I, [LN_MAP_MIN] = BLOCK_MIN_I,
                                                   [LN_MAP_MAX] = BLOCK_MAX_I, [LN_MAP_SELECT] = BLOCK_SELECT};
    if (s->code == LN_MAP_CAST && s->type == LINNET_F32 && s->from == LINNET_I32) return BLOCK_TO_FLOAT;
    if (s->code == LN_MAP_CAST && s->type == LINNET_I32 && s->from == LINNET_F32) return BLOCK_TO_INTEGER;
    if (s->code == LN_MAP_FIXED_MULTIPLY) return s->shift >= -31 && s->shift <= 31 ? BLOCK_FIXED : BLOCK_NONE;
    return s->type == LINNET_F32 ? floats[s->code] : s->type == LINNET_I32 ? integers[s->code] : BLOCK_NONE;
}

/* A step of a run that keeps the vectors stores them to the output as they are. */
static bool map_run_stores(const map_run_step *q) {
    return q->kind == BLOCK_KEEP || (q->kind >= BLOCK_STORE_8 && q->kind <= BLOCK_STORE_BF16);
}
static bool map_run_loads(const map_run_step *q) { return q->kind >= BLOCK_LOAD_I8 && q->kind <= BLOCK_LOAD_BF16; }

/* Executes the run on the last elements of the strip, which do not fill a block. */
static void map_run_rest(const map_run_step *q, int whole, int rest) {
    const ln_map_step *s = q->step;
    const size_t done = (size_t)whole * 4, bytes = (size_t)whole * ln_dtype_size(q->dtype);
    if (map_run_stores(q)) {
        LN_SIMD_NAME(store_run)(s, q->dtype, q->a + done, rest, q->y + bytes, 1);
    } else if (map_run_loads(q)) {
        LN_SIMD_NAME(load_run)(s, q->dtype, q->a + bytes, 1, rest, q->y + done);
        memset(q->y + done + (size_t)rest * 4, 0, (size_t)(-rest & 15) * 4);
    } else {
        const char *b = q->b ? q->b + done : NULL, *c = q->c ? q->c + done : NULL;
        LN_SIMD_NAME(map_arithmetic)(s, rest, q->a + done, b, c, q->y + done);
    }
}

/* Executes the collected steps and empties the run. A value stays in the vectors if the next step reads it. */
static void map_run_flush(map_run *run) {
    map_block blocks[5 * MOST_RUN_STEPS + 1], *to = blocks;
    const char *held = NULL; /* the register whose value is in the vectors */
    const int n = run->n_steps;
    if (n == 0) return;
    run->n_steps = 0;
    /* A plain loop is as fast for a single step. */
    if (n == 1 && !map_run_loads(run->steps) && !map_run_stores(run->steps)) {
        map_run_rest(run->steps, 0, run->n);
        return;
    }
    for (int k = 0; k < n; k++) {
        map_run_step *q = &run->steps[k], *next = k + 1 < n ? q + 1 : NULL;
        const ln_map_step *s = q->step;
        const bool binary = q->kind >= BLOCK_BINARY, loads = map_run_loads(q), stores = map_run_stores(q);
        if ((s->code == LN_MAP_ADD || s->code == LN_MAP_MUL) && held && q->b == held && q->a != held) {
            const char *a = q->a;
            q->a = q->b;
            q->b = a;
            q->same = false;
        }
        if (!loads && (held == NULL || q->a != held)) *to++ = (map_block){.kind = BLOCK_FETCH, .p = q->a};
        const bool half = ln_is_half(q->dtype);
        if (stores && q->kind != BLOCK_KEEP && !half && (s->code == LN_MAP_STORE_QUANTIZED || s->type == LINNET_F32))
            *to++ = (map_block){.kind = BLOCK_QUANTIZE,
                                .step = s->code == LN_MAP_STORE_QUANTIZED ? s : LN_SIMD_NAME(cut)(q->dtype)};
        if (q->kind == BLOCK_KEEP && s->type != q->dtype) *to++ = (map_block){.kind = BLOCK_TO_FLOAT, .step = s};
        *to++ = (map_block){.kind = q->kind + (binary && q->same ? 1 : 0),
                            .step = s,
                            .p = loads    ? q->a
                                 : stores ? q->y
                                          : q->b,
                            .q = q->c};
        if (loads && s->code == LN_MAP_LOAD_DEQUANTIZED)
            *to++ = (map_block){.kind = BLOCK_DEQUANTIZE, .step = s};
        else if (loads && s->type == LINNET_F32 && !half)
            *to++ = (map_block){.kind = BLOCK_TO_FLOAT, .step = s};
        held = stores ? NULL : q->y;
        if (stores) continue;
        if (next && !map_run_loads(next) && s->once && next->b != q->y && next->c != q->y && next->a == q->y) continue;
        *to++ = (map_block){.kind = BLOCK_KEEP, .p = q->y};
    }
    to->kind = BLOCK_END;
    map_blocks(blocks, run->whole);
    for (int k = 0; k < n && run->n > run->whole; k++) map_run_rest(&run->steps[k], run->whole, run->n - run->whole);
}

static map_run_step *map_run_add(map_run *run, const ln_map_step *s, int kind) {
    if (run->n_steps == MOST_RUN_STEPS) map_run_flush(run);
    map_run_step *q = &run->steps[run->n_steps++];
    *q = (map_run_step){.step = s, .kind = kind, .dtype = s->type};
    return q;
}

/* Adds an arithmetic step to the run. Returns false if blocks cannot do it. */
static bool map_run_arithmetic(map_run *run, const ln_map_step *s, char **registers) {
    const int kind = run->whole > 0 ? map_block_kind(s) : BLOCK_NONE;
    if (kind == BLOCK_NONE) return false;
    const int arity = ln_map_opcodes[s->code].arity;
    map_run_step *q = map_run_add(run, s, kind);
    q->a = registers[s->a];
    q->b = arity > 1 ? registers[s->b] : NULL;
    q->c = arity > 2 ? registers[s->c] : NULL;
    q->same = s->same;
    if (kind == BLOCK_MIN_F || kind == BLOCK_MAX_F) {
        float number;
        memcpy(&number, q->b, sizeof number);
        q->same = q->same && number == number;
    }
    q->y = registers[s->y];
    return true;
}

/* Adds a load from or a store to contiguous memory to the run. Returns false if blocks cannot do it. */
static bool map_run_memory(map_run *run, const ln_map_step *s, const ln_map_view *v, char *memory, char *register_) {
    static const uint8_t kinds[] = {[LINNET_I8] = BLOCK_LOAD_I8,   [LINNET_U8] = BLOCK_LOAD_U8,
                                    [LINNET_I16] = BLOCK_LOAD_I16, [LINNET_U16] = BLOCK_LOAD_U16,
                                    [LINNET_F16] = BLOCK_LOAD_F16, [LINNET_BF16] = BLOCK_LOAD_BF16};
    const bool small = v->dtype < sizeof kinds && kinds[v->dtype] != 0, byte = ln_dtype_size(v->dtype) == 1;
    const bool stores = s->code == LN_MAP_STORE || s->code == LN_MAP_STORE_QUANTIZED;
    const bool plain = s->code == LN_MAP_STORE && (v->dtype == LINNET_F32 || (int)v->dtype == s->type);
    if (run->whole == 0 || !(small || plain) || v->rank != 1 || v->strides[0] != 1 || v->iota) return false;
    const bool half = ln_is_half(v->dtype);
    if (s->type != LINNET_F32 && (s->type != LINNET_I32 || half)) return false;
    if (stores && s->type == LINNET_F32 && s->code == LN_MAP_STORE && !byte && !half && !plain) return false;
    if (half && s->code != LN_MAP_LOAD && s->code != LN_MAP_STORE) return false;
    const int kind = plain                     ? BLOCK_KEEP
                     : !stores                 ? kinds[v->dtype]
                     : byte                    ? BLOCK_STORE_8
                     : v->dtype == LINNET_F16  ? BLOCK_STORE_F16
                     : v->dtype == LINNET_BF16 ? BLOCK_STORE_BF16
                                               : BLOCK_STORE_16;
    map_run_step *q = map_run_add(run, s, kind);
    q->dtype = v->dtype;
    q->a = stores ? register_ : memory;
    q->y = stores ? memory : register_;
    return true;
}
