/* map_activations.inc.c - common activations of networks as single steps of a map program. The values stay in vector
 * registers, and the results have the same bits as the instructions that the step replaces. ACTIVATIONS has one row per
 * activation; nothing else names them. map_strip.inc.c includes this file. */
#include "map/map_compile.h"

#if defined(LN_SIMD_AVX512) || defined(LN_SIMD_AVX2)
#define LN_MAP_ACTIVATIONS(...) __VA_ARGS__

/* ---- elementary functions, with the bits of simd/math.h ---- */

/* Finds n and r with c = n ln 2 + r. Returns n + 1.5 * 2^23, whose low bits are n. */
static ALWAYS_INLINE vf act_reduce_exp(vf c, vf *r) {
    const vf large = vf_set1(12582912.0f), t = vf_add(vf_mul(c, vf_set1(0x1.715476p+0f)), large);
    const vf n = vf_sub(t, large);
    /* The first product is exact, so a fused multiply-add gives the same bits. */
    *r = vf_sub(vf_fma(n, vf_set1(-0x1.62e4p-1f), c), vf_mul(n, vf_set1(0x1.7f7d1cp-20f)));
    return t;
}

/* Returns p * 2^n, rounded once. t is the result of act_reduce_exp. */
static ALWAYS_INLINE vf act_scale_exp(vf p, vf t) {
#if defined(LN_SIMD_AVX512)
    return _mm512_scalef_ps(p, vf_sub(t, vf_set1(12582912.0f)));
#else
    const vi k = vi_sub(vf_as_vi(t), vi_set1(0x4b400000)), half = vi_sar(k, 1), bias = vi_set1(127);
    const vf first = vi_as_vf(vi_shl(vi_add(half, bias), 23));
    return vf_mul(vf_mul(p, first), vi_as_vf(vi_shl(vi_add(vi_sub(k, half), bias), 23)));
#endif
}

/* Computes ln_exp_f of numbers from -105 to 89.5. */
static ALWAYS_INLINE vf act_exp_within(vf c) {
    vf r;
    const vf t = act_reduce_exp(c, &r);
    vf p = vf_set1(0x1.6db4e6p-10f);
    p = vf_add(vf_mul(p, r), vf_set1(0x1.123be0p-7f));
    p = vf_add(vf_mul(p, r), vf_set1(0x1.55545ep-5f));
    p = vf_add(vf_mul(p, r), vf_set1(0x1.55548ep-3f));
    p = vf_add(vf_mul(p, r), vf_set1(0x1.000000p-1f));
    p = vf_add(vf_add(vf_mul(vf_mul(p, r), r), r), vf_set1(1.0f));
    return act_scale_exp(p, t);
}

/* These minima and maxima keep NaN. */
static ALWAYS_INLINE vf act_exp_of(vf x) { return act_exp_within(vf_max(vf_set1(-105.0f), vf_min(vf_set1(89.5f), x))); }

static ALWAYS_INLINE vf act_sigmoid_of(vf x) {
    vf r;
    const vf t = act_reduce_exp(vf_max(vf_set1(-105.0f), vf_neg(vf_abs(x))), &r), u = vf_mul(r, r);
    const vf p = vf_add(vf_mul(u, vf_set1(0.1f)), vf_set1(1.0f));
    const vf q = vf_mul(vf_add(vf_mul(u, vf_set1(0x1.111112p-7f)), vf_set1(0.5f)), r);
    const vf above = vf_sub(p, q), below = act_scale_exp(vf_add(p, q), t);
    return vf_div(vf_select(vf_lt(x, vf_zero()), below, above), vf_add(above, below));
}

static ALWAYS_INLINE vf act_signed_as(vf magnitude, vf x) {
    const vi sign = vi_set1(INT32_MIN);
    return vi_as_vf(vi_or(vf_as_vi(vf_abs(magnitude)), vi_and(vf_as_vi(x), sign)));
}

static ALWAYS_INLINE vf act_tanh_of(vf x) {
    const vf a = vf_abs(x), u = vf_mul(x, x), one = vf_set1(1.0f);
    vf p = vf_set1(-0x1.768474p-8f);
    p = vf_add(vf_mul(p, u), vf_set1(0x1.524e60p-6f));
    p = vf_add(vf_mul(p, u), vf_set1(-0x1.b8430ep-5f));
    p = vf_add(vf_mul(p, u), vf_set1(0x1.110760p-3f));
    p = vf_add(vf_mul(p, u), vf_set1(-0x1.555534p-2f));
    const vf small = vf_add(vf_mul(vf_mul(p, u), x), x), e = act_exp_of(vf_add(a, a));
    const vf big = vf_sub(one, vf_div(vf_set1(2.0f), vf_add(e, one)));
    return act_signed_as(vf_select(vf_lt(a, vf_set1(0.625f)), small, big), x);
}

static ALWAYS_INLINE vf act_erf_of(vf x) {
    const vf a = vf_abs(x), u = vf_mul(x, x), z = vf_min(vf_set1(4.0f), a);
    vf p = vf_set1(0x1.5e062ep-14f), q = vf_set1(-0x1.5ecdaep-16f);
    p = vf_add(vf_mul(p, u), vf_set1(-0x1.aaa2d8p-11f));
    p = vf_add(vf_mul(p, u), vf_set1(0x1.54d42ap-8f));
    p = vf_add(vf_mul(p, u), vf_set1(-0x1.b80ff2p-6f));
    p = vf_add(vf_mul(p, u), vf_set1(0x1.ce2e1cp-4f));
    p = vf_add(vf_mul(p, u), vf_set1(-0x1.812744p-2f));
    p = vf_add(vf_mul(p, u), vf_set1(0x1.06eba8p-3f));
    q = vf_add(vf_mul(q, z), vf_set1(0x1.c54d54p-12f));
    q = vf_add(vf_mul(q, z), vf_set1(-0x1.10aa06p-8f));
    q = vf_add(vf_mul(q, z), vf_set1(0x1.9b1958p-6f));
    q = vf_add(vf_mul(q, z), vf_set1(-0x1.bb5650p-4f));
    q = vf_add(vf_mul(q, z), vf_set1(-0x1.444b42p-1f));
    q = vf_add(vf_mul(q, z), vf_set1(-0x1.212698p+0f));
    q = vf_add(vf_mul(q, z), vf_set1(0x1.65ac1ep-13f));
    const vf big = act_signed_as(vf_sub(vf_set1(1.0f), act_exp_within(q)), x);
    const vf number = vf_select(vf_lt(a, vf_set1(0.92f)), vf_add(vf_mul(p, x), x), big);
    return vf_select(vf_eq(x, x), number, x);
}

/* ---- the activations ---- */

#define X 0
#define C (-1)
#define ACTIVATION_STEPS 5

/* ROW(name, the expression in x and the constants c0, c1, ..., the instructions that it replaces). An instruction is an
 * opcode and its operands: X, C for the next constant, or the number of an earlier instruction, from 1. The first row
 * that fits is taken, so longer rows come first. Minima and maxima have the constant on the right and keep NaN. */
#define ACTIVATIONS(ROW)                                                                                               \
    ROW(hard_swish, vf_mul(x, LIMIT(vf_add(vf_mul(x, c0), c1), c2, c3)), {LN_MAP_MUL, X, C}, {LN_MAP_ADD, 1, C},       \
        {LN_MAP_MAX, 2, C}, {LN_MAP_MIN, 3, C}, {LN_MAP_MUL, X, 4})                                                    \
    ROW(hard_swish_last, vf_mul(vf_mul(x, LIMIT(vf_add(x, c0), c1, c2)), c3), {LN_MAP_ADD, X, C}, {LN_MAP_MAX, 1, C},  \
        {LN_MAP_MIN, 2, C}, {LN_MAP_MUL, X, 3}, {LN_MAP_MUL, 4, C})                                                    \
    ROW(gelu, vf_mul(vf_mul(x, vf_add(ERF(vf_mul(x, c0)), c1)), c2), {LN_MAP_MUL, X, C}, {LN_MAP_ERF, 1, X},           \
        {LN_MAP_ADD, 2, C}, {LN_MAP_MUL, X, 3}, {LN_MAP_MUL, 4, C})                                                    \
    ROW(gelu_divided, vf_mul(vf_mul(x, vf_add(ERF(vf_div(x, c0)), c1)), c2), {LN_MAP_DIV, X, C}, {LN_MAP_ERF, 1, X},   \
        {LN_MAP_ADD, 2, C}, {LN_MAP_MUL, X, 3}, {LN_MAP_MUL, 4, C})                                                    \
    ROW(gelu_first, vf_mul(vf_mul(x, c0), vf_add(ERF(vf_mul(x, c1)), c2)), {LN_MAP_MUL, X, C}, {LN_MAP_MUL, X, C},     \
        {LN_MAP_ERF, 2, X}, {LN_MAP_ADD, 3, C}, {LN_MAP_MUL, 1, 4})                                                    \
    ROW(hard_sigmoid, LIMIT(vf_add(vf_mul(x, c0), c1), c2, c3), {LN_MAP_MUL, X, C}, {LN_MAP_ADD, 1, C},                \
        {LN_MAP_MAX, 2, C}, {LN_MAP_MIN, 3, C})                                                                        \
    ROW(quick_gelu, vf_mul(x, SIGMOID(vf_mul(x, c0))), {LN_MAP_MUL, X, C}, {LN_MAP_SIGMOID, 1, X}, {LN_MAP_MUL, X, 2}) \
    ROW(silu, vf_mul(x, SIGMOID(x)), {LN_MAP_SIGMOID, X, X}, {LN_MAP_MUL, X, 1})                                       \
    ROW(sigmoid, SIGMOID(x), {LN_MAP_SIGMOID, X, X})                                                                   \
    ROW(tanh, act_tanh_of(x), {LN_MAP_TANH, X, X})                                                                     \
    ROW(erf, ERF(x), {LN_MAP_ERF, X, X})                                                                               \
    ROW(exp, act_exp_of(x), {LN_MAP_EXP, X, X})

#define SIGMOID(x) act_sigmoid_of(x)
#define ERF(x) act_erf_of(x)
#define LIMIT(x, low, high) vf_min(high, vf_max(low, x))

enum {
#define ROW(name, ...) ACTIVATION_##name,
    ACTIVATIONS(ROW)
#undef ROW
        ACTIVATION_COUNT
};

/* Computes the activation of a step on rows of floats. */
static void act_run(const ln_map_step *s, const float *from, int64_t from_stride, float *to, int64_t to_stride,
                    int64_t rows, int64_t columns) {
    const vf c0 = vf_set1(s->constants[0]), c1 = vf_set1(s->constants[1]);
    const vf c2 = vf_set1(s->constants[2]), c3 = vf_set1(s->constants[3]);
    if (from_stride == columns && to_stride == columns) columns *= rows, rows = 1;
    for (; rows > 0; rows--, from += from_stride, to += to_stride) {
        int64_t i = 0;
        switch (s->activation - 1) {
#define ROW(name, expression, ...)                                                                                     \
    case ACTIVATION_##name:                                                                                            \
        for (; i < columns; i += VF_WIDTH) {                                                                           \
            const int n = (int)ln_min(VF_WIDTH, columns - i);                                                          \
            const vf x = n == VF_WIDTH ? vf_load(from + i) : vf_load_partial(from + i, n), y = expression;             \
            if (n == VF_WIDTH)                                                                                         \
                vf_store(to + i, y);                                                                                   \
            else                                                                                                       \
                vf_store_partial(to + i, n, y);                                                                        \
        }                                                                                                              \
        break;
            ACTIVATIONS(ROW)
#undef ROW
        default: break;
        }
    }
}

/* ---- finding them in a program ---- */

typedef struct act_step {
    int8_t code, a, b;
} act_step;

static const act_step act_steps[][ACTIVATION_STEPS] = {
#define ROW(name, expression, ...) {__VA_ARGS__},
    ACTIVATIONS(ROW)
#undef ROW
};

typedef struct act_match {
    const ln_map_source *source;
    const act_step *steps;
    int64_t x;                       /* the instruction that computes x; -1: not known yet */
    int64_t found[ACTIVATION_STEPS]; /* the instruction of each step */
    double constants[ACTIVATION_STEPS];
} act_match;

/* Tells whether instruction k is operand `ref` of step number `step`. A constant -0 does not fit, because a minimum or
 * maximum could then give the other sign of zero. */
static LN_PLANNING bool act_matches(act_match *m, int ref, int step, int64_t k) {
    const int64_t *in = m->source->map->program.v + k * LN_MAP_WORDS;
    if (ref == X) {
        if (m->x < 0) m->x = k;
        return m->x == k;
    }
    if (in[1] != LINNET_F32) return false;
    if (ref == C) {
        float value[2];
        int at = 0;
        for (int i = 0; i < step - 1; i++) at += m->steps[i].b == C;
        if (!ln_map_constant_value(m->source, k, value)) return false;
        m->constants[at] = value[0];
        return value[0] > 0 || value[0] < 0 || ln_bits_f(value[0]) == 0;
    }
    const act_step *s = &m->steps[ref - 1];
    const int64_t x = m->x;
    if (in[0] != s->code) return false;
    m->found[ref - 1] = k;
    if (ln_map_opcodes[in[0]].arity == 1) return act_matches(m, s->a, ref, in[2]);
    if (act_matches(m, s->a, ref, in[2]) && act_matches(m, s->b, ref, in[3])) return true;
    m->x = x;
    return (in[0] == LN_MAP_ADD || in[0] == LN_MAP_MUL) && act_matches(m, s->a, ref, in[3]) &&
           act_matches(m, s->b, ref, in[2]);
}

/* Returns the number of instructions that read instruction r. */
static LN_PLANNING int act_readers(const int64_t *program, int64_t n, int64_t r) {
    int count = 0;
    for (int64_t k = 0; k < n; k++)
        for (int i = 0; i < ln_map_opcodes[program[k * LN_MAP_WORDS]].arity; i++)
            count += program[k * LN_MAP_WORDS + 2 + i] == r;
    return count;
}

/* Tells whether the activation `row` ends with instruction k, and no other instruction reads an instruction that it
   replaces. */
static LN_PLANNING bool act_ends_with(act_match *m, int row, int64_t k) {
    const ln_ints *program = &m->source->map->program;
    int last = ACTIVATION_STEPS;
    m->steps = act_steps[row];
    m->x = -1;
    memset(m->constants, 0, sizeof m->constants);
    while (m->steps[last - 1].code == 0) last--;
    if (!act_matches(m, last, 0, k)) return false;
    for (int i = 0; i < last - 1; i++)
        if (act_readers(program->v, program->n / LN_MAP_WORDS, m->found[i]) != 1) return false;
    for (int i = last; i < ACTIVATION_STEPS; i++) m->found[i] = -1;
    m->found[last - 1] = -1;
    return true;
}

/* Gives the source a program with activations. Each is the instruction {LN_MAP_ACTIVATION, f32, x, number, first
 * constant}. Instructions that are no longer needed become {0}. */
static LN_PLANNING linnet_status act_find(ln_map_source *source, ln_pool *pool) {
    const ln_map_attributes *map = source->map;
    const int64_t n = map->program.n / LN_MAP_WORDS;
    ln_map_attributes *changed = NULL;
    act_match match = {.source = source};
    for (int64_t k = n - 1; k >= 0; k--)
        for (int row = 0; row < ACTIVATION_COUNT; row++) {
            if (!act_ends_with(&match, row, k)) continue;
            if (changed == NULL) {
                int64_t *program = ln_pool_array(pool, map->program.n, sizeof *program);
                double *floats = ln_pool_array(pool, map->floats.n + n * ACTIVATION_STEPS, sizeof *floats);
                changed = ln_pool_alloc(pool, sizeof *changed);
                if (program == NULL || floats == NULL || changed == NULL) return LINNET_OUT_OF_MEMORY;
                *changed = *map;
                memcpy(program, map->program.v, (size_t)map->program.n * sizeof *program);
                if (map->floats.n > 0) memcpy(floats, map->floats.v, (size_t)map->floats.n * sizeof *floats);
                changed->program.v = program, changed->floats.v = floats;
                source->map = changed, source->activations = true;
            }
            int64_t *program = (int64_t *)(uintptr_t)changed->program.v;
            const int64_t first = k * LN_MAP_WORDS, at = changed->floats.n;
            memcpy((double *)(uintptr_t)changed->floats.v + at, match.constants, sizeof match.constants);
            changed->floats.n += ACTIVATION_STEPS;
            program[first] = LN_MAP_ACTIVATION, program[first + 2] = match.x;
            program[first + 3] = row + 1, program[first + 4] = at;
            for (int i = 0; i < ACTIVATION_STEPS; i++)
                if (match.found[i] >= 0) program[match.found[i] * LN_MAP_WORDS] = 0;
            for (int64_t c = 0; c < k; c++) { /* constants that nothing reads any more */
                float value[2];
                if (ln_map_constant_value(source, c, value) && act_readers(program, n, c) == 0)
                    program[c * LN_MAP_WORDS] = 0;
            }
            break;
        }
    return LINNET_OK;
}

#undef SIGMOID
#undef ERF
#undef LIMIT
#undef ACTIVATIONS
#undef X
#undef C

#else
#define LN_MAP_ACTIVATIONS(...)
#endif

/* Computes one step that neither loads nor stores. */
static void LN_SIMD_NAME(map_step)(const ln_map_step *s, int n, const void *a, const void *b, const void *c, void *y) {
    LN_MAP_ACTIVATIONS(if (s->code == LN_MAP_ACTIVATION && s->activation != 0) {
        act_run(s, a, 0, y, 0, 1, (n + 15) & ~15);
        return;
    })
    LN_SIMD_NAME(map_arithmetic)(s, n, a, b, c, y);
}
