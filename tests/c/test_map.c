/* test_map.c - compares the strip interpreters of map with the reference bit by bit, for every opcode, dtype and
 * broadcast pattern. Also tests look-up tables and the accuracy of the elementary functions, and compares epilogues on
 * tiles with the same map as a node. */
#include "compare.h"

#include "fast/gemm/epilogue.h"
#include "generated/op_table.h"
#include "map/map_epilogue.h"
#include "simd/math.h"

#include <stdarg.h>

/* ---- building programs ---- */

typedef struct program {
    int64_t code[5 * 128];
    int n;
    double floats[64];
    int64_t integers[64], dtypes[4];
    int n_floats, n_integers;
    ln_map_attributes attributes;
} program;

static int emit(program *p, int opcode, int type, int64_t a, int64_t b, int64_t c) {
    int64_t row[5] = {opcode, type, a, b, c};
    memcpy(p->code + 5 * p->n, row, sizeof row);
    return p->n++;
}

static int emit_float(program *p, double v) {
    p->floats[p->n_floats] = v;
    return emit(p, LN_MAP_CONST, LINNET_F32, p->n_floats++, 0, 0);
}

static const ln_map_attributes *finish(program *p, int n_outputs) {
    p->attributes = (ln_map_attributes){.program = {p->code, 5 * p->n},
                                        .floats = {p->floats, p->n_floats},
                                        .integers = {p->integers, p->n_integers},
                                        .dtypes = {p->dtypes, n_outputs}};
    return &p->attributes;
}

static const int64_t sizes[] = {1, 15, 16, 17, 127, 511, 512, 513, 1021, 2500};
static const int register_types[4] = {LINNET_F32, LINNET_F64, LINNET_I32, LINNET_I64};

/* Values that reach every branch: special values among numbers of many magnitudes. */
static void *values_of(int dtype, int64_t n, bool small) {
    static const double specials[] = {0.0,   -0.0,   1.0,        -1.0,      0.5,   -0.5, 2.0,  1.5,   2.5,    -2.5,
                                      1e-45, -1e-40, 1e-38,      3e38,      -3e38, 88.0, 89.0, -87.5, -103.9, 1e6,
                                      1.1e6, 1e20,   16777217.0, 0.4142135, 7.0,   -8.0, 31.0, 63.0};
    char *data = malloc((size_t)ln_max(1, n) * 8);
    for (int64_t i = 0; i < n; i++) {
        int kind = random_below(6);
        double v = random_unit() * (small ? 4.0 : pow(10.0, random_below(12) - 4));
        if (kind == 0) v = specials[random_below((int)(sizeof specials / sizeof *specials))];
        if (ln_dtype_is_float(dtype)) {
            if (kind == 1 && !small) v = (double[]){INFINITY, -INFINITY, NAN}[random_below(3)];
            ln_store_f64(data, dtype, i, v);
        } else {
            int64_t w = kind == 2   ? INT64_MIN + random_below(3)
                        : kind == 3 ? INT64_MAX
                                    : (int64_t)random_below(200) - 100;
            if (kind == 4) w = (int64_t)((uint64_t)random_u32() << 32 | random_u32());
            memcpy(data + (size_t)i * ln_dtype_size(dtype), &w, ln_dtype_size(dtype));
            if (dtype == LINNET_BOOL) data[i] = (char)random_below(2);
        }
    }
    return data;
}

static void run_case(const char *name, program *p, int n_inputs, const ln_tensor *inputs, int n_outputs, int layout,
                     bool small, const ln_quant *quant_y) {
    test_case t = {.name = name,
                   .op = LN_OP_MAP,
                   .attributes = finish(p, n_outputs),
                   .n_inputs = n_inputs,
                   .n_outputs = n_outputs,
                   .y_layout = layout,
                   .tolerance = -1,
                   .expect = "map_any"};
    for (int i = 0; i < n_inputs; i++) {
        uint64_t bytes;
        t.inputs[i] = inputs[i];
        t.given[i] = true;
        ln_bytes(&inputs[i], &bytes);
        t.values[i] = values_of(inputs[i].dtype, (int64_t)(bytes / ln_dtype_size(inputs[i].dtype)), small);
    }
    t.outputs[0].quant = quant_y;
    compare(&t);
    for (int i = 0; i < n_inputs; i++) free((void *)(uintptr_t)t.values[i]);
}

/* ---- every opcode with every register type ---- */

static void test_opcodes(void) {
    for (int opcode = LN_MAP_ADD; opcode < LN_MAP_LIMIT; opcode++) {
        const ln_map_opcode_row *row = &ln_map_opcodes[opcode];
        if (!row->name) continue;
        for (int k = 0; k < 4; k++) {
            int type = register_types[k], bit = k < 2 ? 1 : 2;
            bool fixed = opcode == LN_MAP_FIXED_MULTIPLY || opcode == LN_MAP_FIXED_MULTIPLY_SINGLE;
            if (!(row->types & bit) || (fixed && type != LINNET_I32)) continue;
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                program p = {0};
                char name[64];
                int64_t n = sizes[s];
                int first = opcode == LN_MAP_SELECT || opcode == LN_MAP_TABLE ? LINNET_I32 : type;
                ln_tensor in[3] = {TENSOR(first, 0, n), TENSOR(type, 0, n), TENSOR(type, 0, n)};
                int a = emit(&p, LN_MAP_LOAD, first, 0, 0, 0), y, n_inputs = 1;
                if (fixed) {
                    p.integers[0] = 1073741824 + random_below(1000000000);
                    p.integers[1] = random_below(40) - 8;
                    if (p.integers[1] > 31) p.integers[1] = 31;
                    p.n_integers = 2;
                    y = emit(&p, opcode, type, a, 0, 1);
                } else if (opcode == LN_MAP_TABLE) {
                    in[1] = TENSOR(type, 0, 37);
                    n_inputs = 2;
                    y = emit(&p, opcode, type, a, 1, 0);
                } else {
                    int b = 0, c = 0;
                    if (row->arity > 1) {
                        b = emit(&p, LN_MAP_LOAD, type, 1, 0, 0);
                        n_inputs = 2;
                    }
                    if (row->arity > 2) {
                        c = emit(&p, LN_MAP_LOAD, type, 2, 0, 0);
                        n_inputs = 3;
                    }
                    y = emit(&p, opcode, type, a, b, c);
                }
                int result = opcode >= LN_MAP_EQ && opcode <= LN_MAP_IS_INF ? LINNET_I32 : type;
                emit(&p, LN_MAP_STORE, result, y, 0, 0);
                p.dtypes[0] = result;
                snprintf(name, sizeof name, "%s type %d size %d", ln_names + row->name, type, (int)n);
                run_case(name, &p, n_inputs, in, 1, 0, s % 3 == 2, NULL);
            }
        }
    }
}

/* ---- activations, which some ISAs compute as one step ---- */

enum { ACTIVATIONS = 14 };

static int emit_f(program *p, int opcode, int a, int b) {
    const bool swap = (opcode == LN_MAP_ADD || opcode == LN_MAP_MUL) && random_below(2);
    return emit(p, opcode, LINNET_F32, swap ? b : a, swap ? a : b, 0);
}

/* clip(v, low, high) */
static int emit_limits(program *p, int v, double low, double high) {
    v = emit_f(p, LN_MAP_MAX, v, emit_float(p, low));
    return emit_f(p, LN_MAP_MIN, v, emit_float(p, high));
}

/* Activation number `which` of x. The last ones differ from activations in one instruction. */
static int emit_activation(program *p, int which, int x) {
    int v = x;
    switch (which) {
    case 0: /* hard swish, and with constants for which signs of zero matter */
    case 1:
        v = emit_f(p, LN_MAP_MUL, x, emit_float(p, which ? -0.25 : 1.0 / 6));
        v = emit_f(p, LN_MAP_ADD, v, emit_float(p, which ? -0.0 : 0.5));
        return emit_f(p, LN_MAP_MUL, x, emit_limits(p, v, 0, 1));
    case 2:
        v = emit_limits(p, emit_f(p, LN_MAP_ADD, x, emit_float(p, 3)), 0, 6);
        return emit_f(p, LN_MAP_MUL, emit_f(p, LN_MAP_MUL, x, v), emit_float(p, 1.0 / 6));
    case 3:
    case 4: /* gelu */
        v = emit(p, which == 3 ? LN_MAP_MUL : LN_MAP_DIV, LINNET_F32, x, emit_float(p, which == 3 ? 0.7071 : 1.4142),
                 0);
        v = emit_f(p, LN_MAP_ADD, emit(p, LN_MAP_ERF, LINNET_F32, v, 0, 0), emit_float(p, 1));
        return emit_f(p, LN_MAP_MUL, emit_f(p, LN_MAP_MUL, x, v), emit_float(p, 0.5));
    case 5: {
        const int half = emit_f(p, LN_MAP_MUL, x, emit_float(p, 0.5));
        v = emit(p, LN_MAP_ERF, LINNET_F32, emit_f(p, LN_MAP_MUL, x, emit_float(p, 0.7071)), 0, 0);
        return emit_f(p, LN_MAP_MUL, half, emit_f(p, LN_MAP_ADD, v, emit_float(p, 1)));
    }
    case 6: /* hard sigmoid */
        v = emit_f(p, LN_MAP_ADD, emit_f(p, LN_MAP_MUL, x, emit_float(p, 0.2)), emit_float(p, 0.5));
        return emit_limits(p, v, 0, 1);
    case 7:
        v = emit(p, LN_MAP_SIGMOID, LINNET_F32, emit_f(p, LN_MAP_MUL, x, emit_float(p, 1.702)), 0, 0);
        return emit_f(p, LN_MAP_MUL, x, v);
    case 8: return emit_f(p, LN_MAP_MUL, emit(p, LN_MAP_SIGMOID, LINNET_F32, x, 0, 0), x);
    case 9: return emit(p, LN_MAP_TANH, LINNET_F32, x, 0, 0);
    case 10: return emit(p, LN_MAP_ERF, LINNET_F32, x, 0, 0);
    case 11: return emit(p, LN_MAP_EXP, LINNET_F32, x, 0, 0);
    case 12:                                              /* another instruction reads the sigmoid, too */
        v = emit(p, LN_MAP_SIGMOID, LINNET_F32, x, 7, 0); /* the unused operand has no meaning */
        return emit_f(p, LN_MAP_ADD, emit_f(p, LN_MAP_MUL, x, v), v);
    default: /* the product is with another value than the argument */
        v = emit(p, LN_MAP_SIGMOID, LINNET_F32, x, 0, 0);
        return emit_f(p, LN_MAP_MUL, emit(p, LN_MAP_ABS, LINNET_F32, x, 0, 0), v);
    }
}

/* Each activation alone, and between other instructions. */
static void test_activations(void) {
    for (int which = 0; which < 2 * ACTIVATIONS; which++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const bool between = which >= ACTIVATIONS;
            const ln_tensor in[2] = {TENSOR(LINNET_F32, 0, sizes[s]), TENSOR(LINNET_F32, 0, sizes[s])};
            program p = {0};
            char name[64];
            int x = emit(&p, LN_MAP_LOAD, LINNET_F32, 0, 0, 0), y;
            const int more = between ? emit(&p, LN_MAP_LOAD, LINNET_F32, 1, 0, 0) : 0;
            if (between) x = emit_f(&p, LN_MAP_ADD, x, more);
            y = emit_activation(&p, which % ACTIVATIONS, x);
            if (between) y = emit_activation(&p, random_below(ACTIVATIONS), emit_f(&p, LN_MAP_SUB, y, more));
            emit(&p, LN_MAP_STORE, LINNET_F32, y, 0, 0);
            p.dtypes[0] = between && s % 2 ? LINNET_F16 : LINNET_F32;
            snprintf(name, sizeof name, "activation %d size %d", which, (int)sizes[s]);
            run_case(name, &p, between ? 2 : 1, in, 1, 0, s % 3 == 2, NULL);
        }
}

/* ---- loads, stores and casts ---- */

static void test_memory(void) {
    for (int dtype = LINNET_F32; dtype <= LINNET_BOOL; dtype++)
        for (int k = 0; k < 4; k++)
            for (int to = LINNET_F32; to <= LINNET_BOOL; to++) {
                program p = {0};
                char name[64];
                int64_t n = sizes[random_below(10)];
                ln_tensor in[1] = {TENSOR(dtype, 0, n)};
                if (dtype == LINNET_U32 && register_types[k] == LINNET_I32) continue;
                int a = emit(&p, LN_MAP_LOAD, register_types[k], 0, 0, 0);
                emit(&p, LN_MAP_STORE, register_types[k], a, 0, 0);
                p.dtypes[0] = to;
                snprintf(name, sizeof name, "dtype %d to %d by register %d, size %d", dtype, to, register_types[k],
                         (int)n);
                run_case(name, &p, 1, in, 1, 0, false, NULL);
            }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            program p = {0};
            ln_tensor in[1] = {TENSOR(register_types[i], 0, 700)};
            int a = emit(&p, LN_MAP_LOAD, register_types[i], 0, 0, 0);
            int b = emit(&p, LN_MAP_CAST, register_types[k], a, 0, 0);
            int c = emit(&p, LN_MAP_NEG, register_types[k], b, 0, 0);
            emit(&p, LN_MAP_STORE, register_types[k], c, 0, 0);
            p.dtypes[0] = register_types[k];
            run_case("cast", &p, 1, in, 1, 0, false, NULL);
        }
}

/* ---- broadcasting, layouts, several outputs ---- */

static int random_chain(program *p, int n_inputs, int length, int rank) {
    static const int unary[] = {LN_MAP_NEG, LN_MAP_TANH, LN_MAP_SIGMOID, LN_MAP_FLOOR, LN_MAP_ABS};
    static const int binary[] = {LN_MAP_ADD, LN_MAP_SUB, LN_MAP_MUL, LN_MAP_MAX, LN_MAP_MIN};
    int values[128], n = 0;
    for (int i = 0; i < n_inputs; i++) values[n++] = emit(p, LN_MAP_LOAD, LINNET_F32, i, 0, 0);
    values[n++] = emit_float(p, 0.75);
    if (rank > 0) values[n++] = emit(p, LN_MAP_IOTA, LINNET_F32, random_below(rank), 0, 0);
    for (int i = 0; i < length; i++) {
        int a = values[random_below(n)], b = values[n - 1];
        if (i % 7 == 3) { /* converts to another register type and back */
            int wide = emit(p, LN_MAP_CAST, random_below(2) ? LINNET_F64 : LINNET_I64, a, 0, 0);
            values[n++] = emit(p, LN_MAP_CAST, LINNET_F32, wide, 0, 0);
        } else if (i % 5 == 2) {
            int test = emit(p, LN_MAP_LT, LINNET_F32, a, b, 0);
            values[n++] = emit(p, LN_MAP_SELECT, LINNET_F32, test, b, a);
        } else if (random_below(2)) {
            values[n++] = emit(p, unary[random_below(5)], LINNET_F32, b, 0, 0);
        } else {
            values[n++] = emit(p, binary[random_below(5)], LINNET_F32, a, b, 0);
        }
    }
    return values[n - 1];
}

static void test_broadcast(void) {
    for (int round = 0; round < 60; round++) {
        int64_t a = 1 + random_below(5), b = 1 + random_below(40), c = 1 + random_below(33), d = 1 + random_below(9);
        int layout = random_below(2);
        ln_tensor patterns[] = {TENSOR(LINNET_F32, layout, a, b, c, d),
                                TENSOR(LINNET_F32, 0, 1),
                                TENSOR(LINNET_F32, 0, d),
                                TENSOR(LINNET_F32, 0, b, 1, 1),
                                TENSOR(LINNET_F32, 0, c, 1),
                                TENSOR(LINNET_F16, 1 - layout, a, b, c, d),
                                TENSOR(LINNET_I8, 0, a, 1, 1, 1),
                                TENSOR(LINNET_F32, 1, a, b, 1, d),
                                TENSOR(LINNET_BF16, 0, b, c, d)};
        ln_tensor in[3] = {patterns[random_below(2) ? 0 : 5], patterns[random_below(9)], patterns[random_below(9)]};
        program p = {0};
        int y = random_chain(&p, 3, 1 + random_below(40), 4);
        emit(&p, LN_MAP_STORE, LINNET_F32, y, 0, 0);
        p.dtypes[0] = LINNET_F32;
        if (round % 3 == 0) {
            emit(&p, LN_MAP_STORE, LINNET_F32, y, 1, 0);
            p.dtypes[1] = round % 2 ? LINNET_F32 : LINNET_I8;
        }
        run_case("broadcast", &p, 3, in, round % 3 == 0 ? 2 : 1, random_below(2), true, NULL);
    }
}

/* ---- quantization ---- */

static void test_quantized(void) {
    static const int dtypes[] = {LINNET_I8, LINNET_U8, LINNET_I16, LINNET_U16};
    for (int round = 0; round < 48; round++) {
        int from = dtypes[round % 4], to = dtypes[round / 4 % 4], axis = random_below(3), per_axis = round % 3;
        int64_t dims[3] = {1 + random_below(4), 1 + random_below(30), 1 + random_below(70)};
        /* A sigmoid that is 0 instead of denormal would not be the same number times infinity. */
        ln_quant *qx = quant_of(1, 0, 0.001, FLUSHES ? 0.002 : 0.1, -20, 20);
        ln_quant *qy = quant_of(per_axis == 2 ? (int)dims[axis] : 1, axis, 0.001, 0.1, 0, 0);
        if (per_axis == 1) qx->bits = 4;
        ln_tensor in[2] = {tensor_of(from, 0, 3, dims), tensor_of(LINNET_F32, 0, 3, dims)};
        in[0].quant = qx;
        program p = {0};
        int x = emit(&p, LN_MAP_LOAD_DEQUANTIZED, LINNET_F32, 0, 0, 0);
        int z = emit(&p, LN_MAP_LOAD, LINNET_F32, 1, 0, 0);
        int s = emit(&p, LN_MAP_SIGMOID, LINNET_F32, x, 0, 0);
        int m = emit(&p, LN_MAP_MUL, LINNET_F32, s, z, 0);
        emit(&p, LN_MAP_STORE_QUANTIZED, LINNET_F32, m, 0, 0);
        p.dtypes[0] = to;
        run_case("quantized", &p, 2, in, 1, random_below(2), false, qy);

        /* One 8-bit operand: uses a look-up table of 256 entries. */
        if (ln_dtype_size(from) == 1 && ln_dtype_size(to) == 1) {
            program q = {0};
            int v = emit(&q, LN_MAP_LOAD_DEQUANTIZED, LINNET_F32, 0, 0, 0);
            int e = emit(&q, LN_MAP_EXP, LINNET_F32, v, 0, 0);
            int u = emit(&q, LN_MAP_TANH, LINNET_F32, e, 0, 0);
            int w = emit(&q, LN_MAP_ERF, LINNET_F32, u, 0, 0);
            emit(&q, LN_MAP_STORE_QUANTIZED, LINNET_F32, w, 0, 0);
            q.dtypes[0] = to;
            if (per_axis != 2) run_case("table", &q, 1, in, 1, 0, false, qy);
        }
        quant_free(qx);
        quant_free(qy);
    }
}

static int emit_integer(program *p, int64_t v) {
    p->integers[p->n_integers] = v;
    return emit(p, LN_MAP_CONST, LINNET_I32, p->n_integers++, 0, 0);
}

static int emit_fixed(program *p, int x, int64_t multiplier, int64_t right) {
    p->integers[p->n_integers] = multiplier, p->integers[p->n_integers + 1] = right;
    p->n_integers += 2;
    return emit(p, LN_MAP_FIXED_MULTIPLY, LINNET_I32, x, p->n_integers - 2, p->n_integers - 1);
}

/* Emits ((x - zero) * factor).fixed_multiply(...) of input `i`. */
static int emit_term(program *p, int i, int zero, int factor, bool half) {
    const int x = emit(p, LN_MAP_LOAD, LINNET_I32, i, 0, 0);
    const int moved = emit(p, LN_MAP_SUB, LINNET_I32, x, emit_integer(p, zero), 0);
    const int scaled = emit(p, LN_MAP_MUL, LINNET_I32, moved, emit_integer(p, factor), 0);
    return emit_fixed(p, scaled, half ? 1 << 30 : (1 << 30) + random_below(1 << 30), half ? 0 : random_below(4));
}

/* Sums of two 8-bit tensors as TensorFlow Lite computes them, which have a loop of their own, and programs that differ
 * from them in one respect: no operand with the factor 1/2, shifts of 0, factors that are too large or too small. */
static void test_sums(void) {
    static const int factors[] = {1 << 20, -(1 << 20), 1 << 20, 1 << 16, 1 << 21, 1 << 15, 3 << 17};
    for (int round = 0; round < 140; round++) {
        const int dtype = round % 2 ? LINNET_U8 : LINNET_I8, low = dtype == LINNET_I8 ? -128 : 0;
        const int64_t n = sizes[round % 10] + round / 10 % 3;
        ln_tensor in[2] = {TENSOR(dtype, 0, n), TENSOR(dtype, 0, n)};
        program p = {0};
        const int a = emit_term(&p, 0, low + random_below(256), 1 << 20, round % 3 > 0);
        const int b = emit_term(&p, 1, low + random_below(256), factors[round % 7], round % 3 < 2);
        int y = emit_fixed(&p, emit(&p, LN_MAP_ADD, LINNET_I32, a, b, 0), (1 << 30) + random_below(1 << 30),
                           round % 5 + 16);
        y = emit(&p, LN_MAP_ADD, LINNET_I32, y, emit_integer(&p, low + random_below(256)), 0);
        const int bottom = low + random_below(100);
        y = emit(&p, LN_MAP_MAX, LINNET_I32, y, emit_integer(&p, bottom), 0);
        y = emit(&p, LN_MAP_MIN, LINNET_I32, y, emit_integer(&p, low + 100 + random_below(156)), 0);
        emit(&p, LN_MAP_STORE, LINNET_I32, y, 0, 0);
        p.dtypes[0] = dtype;
        run_case("sum", &p, 2, in, 1, 0, false, NULL);
    }
}

/* Tests numbers next to exact ties and beyond the range, with every kind of scale. The stored integer must be the one
 * that a division gives. */
static void test_ties(void) {
    enum { N = 1300 };
    static const int dtypes[] = {LINNET_I8, LINNET_U8, LINNET_I16};
    static const float extreme[] = {1e-40f, 1e-30f, 0x1p-62f, 0x1p-3f, 1.0f, 0.1f, 1e30f, 0x1.fffffep-4f};
    float *values = malloc(N * sizeof *values);
    int16_t *got = malloc(N * sizeof *got);
    for (const ln_kernel *k = ln_kernels; k->code != NULL; k++) {
        if (k->op != LN_OP_MAP || !can_run(k)) continue;
        for (int round = 0; round < 300; round++) {
            int dtype = dtypes[round % 3];
            float scale = round < 24 ? extreme[round / 3] : exp2f((float)random_unit() * 12 - 6);
            int32_t zero = dtype == LINNET_U8 ? 100 : -3;
            int64_t low = dtype == LINNET_I8 ? -128 : dtype == LINNET_U8 ? 0 : -32768;
            int64_t high = dtype == LINNET_I8 ? 127 : dtype == LINNET_U8 ? 255 : 32767;
            for (int i = 0; i < N; i++) {
                float tie = ((float)(low + random_below((int)(high - low + 1)) - zero) + 0.5f) * scale;
                int steps = random_below(5) - 2;
                for (int step = 0; step < (steps < 0 ? -steps : steps); step++)
                    tie = nextafterf(tie, steps < 0 ? -INFINITY : INFINITY);
                values[i] = i % 100 == 0   ? (float)INFINITY
                            : i % 100 == 1 ? -(float)INFINITY
                            : i % 100 == 2 ? NAN
                            : i % 100 == 3 ? 3e38f
                                           : tie;
            }
            ln_quant quant = {.scheme = LN_QUANT_TENSOR, .count = 1, .scale = &scale, .zero = &zero};
            program p = {0};
            int x = emit(&p, LN_MAP_LOAD, LINNET_F32, 0, 0, 0);
            emit(&p, LN_MAP_STORE_QUANTIZED, LINNET_F32, x, 0, 0);
            p.dtypes[0] = dtype;
            ln_memory memory;
            ln_pool pool;
            ln_memory_init(&memory, NULL);
            ln_pool_init(&pool, &memory);
            ln_tensor in = TENSOR(LINNET_F32, 0, N), out = TENSOR(dtype, 0, N);
            out.quant = &quant;
            ln_call call = {.op = &ln_ops[LN_OP_MAP],
                            .attributes = finish(&p, 1),
                            .n_inputs = 1,
                            .n_outputs = 1,
                            .inputs = &in,
                            .outputs = &out,
                            .inner = &out,
                            .features = k->needs,
                            .threads = 1,
                            .phases = 1,
                            .work = {1, 1},
                            .grain = 1,
                            .plan = &pool};
            bool ok = takes(k, &call) && k->code->configure(&call) == LINNET_OK;
            char *scratch = aligned_alloc(64, ln_round_up(call.scratch_thread + 64, 64));
            ln_buffers b = {.inputs = (const void *[]){values}, .outputs = (void *[]){got}, .thread_scratch = scratch};
            ok = ok && k->code->run(&call, &b, 0, 0, call.work[0], 0) == LINNET_OK;
            for (int i = 0; i < N && ok; i++) {
                double quotient = (double)rintf(values[i] / scale) + zero;
                int64_t wanted = quotient > (double)low ? (int64_t)fmin(quotient, (double)high) : low;
                int64_t stored = dtype == LINNET_I8   ? ((int8_t *)got)[i]
                                 : dtype == LINNET_U8 ? ((uint8_t *)got)[i]
                                                      : got[i];
                ok = stored == wanted;
                if (!ok)
                    printf("%a / %a: %lld, expected %lld\n", (double)values[i], (double)scale, (long long)stored,
                           (long long)wanted);
            }
            comparisons++;
            if (!ok) {
                failures++;
                printf("ties: %s at scale %a\n", k->name, (double)scale);
            }
            free(scratch);
            ln_pool_free(&pool);
        }
    }
    free(values);
    free(got);
}

/* ---- in place: the output is in the memory of an input ---- */

static void test_in_place(void) {
    for (const ln_kernel *k = ln_kernels; k->code != NULL; k++) {
        if (k->op != LN_OP_MAP || !can_run(k)) continue;
        program p = {0};
        int x = emit(&p, LN_MAP_LOAD, LINNET_F32, 0, 0, 0);
        int s = emit(&p, LN_MAP_SIGMOID, LINNET_F32, x, 0, 0);
        emit(&p, LN_MAP_STORE, LINNET_F32, s, 0, 0); /* stored before x is read again */
        int y = emit(&p, LN_MAP_MUL, LINNET_F32, s, x, 0);
        emit(&p, LN_MAP_STORE, LINNET_F32, y, 1, 0);
        p.dtypes[0] = p.dtypes[1] = LINNET_F32;
        enum { N = 1300 };
        float values[N], copy[N], other[N];
        for (int i = 0; i < N; i++) values[i] = copy[i] = (float)random_unit();
        ln_memory memory;
        ln_pool pool;
        ln_memory_init(&memory, NULL);
        ln_pool_init(&pool, &memory);
        ln_tensor in = TENSOR(LINNET_F32, 0, N), out[2] = {in, in};
        ln_call call = {.op = &ln_ops[LN_OP_MAP],
                        .attributes = finish(&p, 2),
                        .n_inputs = 1,
                        .n_outputs = 2,
                        .inputs = &in,
                        .outputs = out,
                        .inner = out,
                        .features = k->needs,
                        .threads = 1,
                        .phases = 1,
                        .work = {1, 1},
                        .grain = 1,
                        .plan = &pool};
        bool ok = takes(k, &call) && k->code->configure(&call) == LINNET_OK;
        char *scratch = aligned_alloc(64, ln_round_up(call.scratch_thread + 64, 64));
        ln_buffers b = {
            .inputs = (const void *[]){values}, .outputs = (void *[]){values, other}, .thread_scratch = scratch};
        ok = ok && k->code->run(&call, &b, 0, 0, call.work[0], 0) == LINNET_OK;
        for (int i = 0; i < N && ok; i++)
            ok = values[i] == ln_sigmoid_f(copy[i]) && other[i] == ln_sigmoid_f(copy[i]) * copy[i];
        comparisons++;
        if (!ok) {
            fprintf(stderr, "FAIL in place: %s\n", k->name);
            failures++;
        }
        free(scratch);
        ln_pool_free(&pool);
    }
}

/* ---- epilogues: computed tile by tile, they must equal the map as a node ---- */

static void epilogue_case(ln_features features, int kind, int layout, int64_t n, int64_t c, int64_t h, int64_t w) {
    program p = {0};
    const float *data[3];
    int64_t dims[4] = {n, c, h, w};
    ln_tensor x = tensor_of(LINNET_F32, layout, 4, dims), y = x, in[3] = {x, x, x};
    ln_quant *q = quant_of(1, 0, 0.01, 0.02, -5, 5), *q_axis = quant_of((int)c, 1, 0.01, 0.02, 3, 3);
    int64_t columns = layout ? c : w, rows = ln_count(&x) / columns;
    int n_inputs = 1, tile = 0;
    int a = emit(&p, LN_MAP_LOAD, LINNET_F32, 0, 0, 0), r = a, out = LN_MAP_STORE;
    y.quant = NULL;
    switch (kind) {
    case 0: /* relu6 */
        r = emit(&p, LN_MAP_MAX, LINNET_F32, a, emit_float(&p, 0.0), 0);
        r = emit(&p, LN_MAP_MIN, LINNET_F32, r, emit_float(&p, 6.0), 0);
        break;
    case 1: /* silu */
        r = emit(&p, LN_MAP_SIGMOID, LINNET_F32, a, 0, 0);
        r = emit(&p, LN_MAP_MUL, LINNET_F32, r, a, 0);
        break;
    case 2: /* residual, quantized on both sides */
        in[1].dtype = LINNET_I8;
        in[1].quant = q;
        n_inputs = 2;
        r = emit(&p, LN_MAP_ADD, LINNET_F32, a, emit(&p, LN_MAP_LOAD_DEQUANTIZED, LINNET_F32, 1, 0, 0), 0);
        r = emit(&p, LN_MAP_MAX, LINNET_F32, r, emit_float(&p, 0.0), 0);
        out = LN_MAP_STORE_QUANTIZED;
        y.dtype = LINNET_I8;
        y.quant = layout && c > 1 ? q_axis : q;
        break;
    case 3: /* per-column and scalar operands; the tile is input 1 */
        tile = 1;
        in[0] = layout ? TENSOR(LINNET_F32, 0, c, 1, 1) : TENSOR(LINNET_F32, 0, w);
        in[2] = TENSOR(LINNET_F32, 0, 1);
        n_inputs = 3;
        r = emit(&p, LN_MAP_ADD, LINNET_F32, a, emit(&p, LN_MAP_LOAD, LINNET_F32, 1, 0, 0), 0);
        r = emit(&p, LN_MAP_MUL, LINNET_F32, r, emit(&p, LN_MAP_LOAD, LINNET_F32, 2, 0, 0), 0);
        break;
    default: /* activations to f32 and f16 */
        r = emit_activation(&p, (kind - 4) % ACTIVATIONS, a);
        if (kind - 4 < ACTIVATIONS) break;
        y.dtype = LINNET_F16;
        break;
    }
    emit(&p, out, LINNET_F32, r, 0, 0);
    p.dtypes[0] = y.dtype;
    const ln_map_attributes *map = finish(&p, 1);

    ln_memory memory;
    ln_pool pool;
    ln_memory_init(&memory, NULL);
    ln_pool_init(&pool, &memory);
    guarded buffers[3], expected = guarded_new(bytes_of(&y), false), got = guarded_new(bytes_of(&y), false);
    const void *inputs[3], *extra[4];
    for (int i = 0; i < n_inputs; i++) {
        buffers[i] = guarded_new(bytes_of(&in[i]), false);
        fill_random(buffers[i].data, in[i].dtype, ln_count(&in[i]));
        for (int64_t e = 0; e < ln_count(&in[i]) && in[i].dtype == LINNET_F32; e++)
            ((float *)buffers[i].data)[e] *= 8.0f;
        inputs[i] = buffers[i].data;
        data[i] = buffers[i].data;
    }
    ln_call node = {.op = &ln_ops[LN_OP_MAP],
                    .attributes = map,
                    .n_inputs = n_inputs,
                    .n_outputs = 1,
                    .inputs = in,
                    .outputs = &y,
                    .inner = &y,
                    .threads = 1,
                    .phases = 1,
                    .work = {1, 1},
                    .grain = 1,
                    .plan = &pool};
    const ln_kernel_code *reference = reference_of(LN_OP_MAP)->code;
    bool ok = reference->configure(&node) == LINNET_OK;
    char *scratch = aligned_alloc(64, ln_round_up(node.scratch_thread + 64, 64));
    ln_buffers b = {.inputs = inputs, .outputs = (void *[]){expected.data}, .thread_scratch = scratch};
    ok = ok && reference->run(&node, &b, 0, 0, node.work[0], 0) == LINNET_OK;

    ok = ok && ln_epilogue_fits(map, in, n_inputs, tile, &x, &y);
    ln_epilogue e = {.map = map, .tile_input = tile, .n_inputs = n_inputs};
    ln_tensor all[4] = {x};
    extra[0] = NULL; /* the op's own input */
    int m = 1;
    for (int i = 0; i < n_inputs; i++) {
        if (i == tile) continue;
        e.operand[i] = m - 1;
        extra[m] = inputs[i];
        all[m++] = in[i];
    }
    ln_call call = {.op = &ln_ops[LN_OP_CONV],
                    .n_inputs = 1,
                    .n_outputs = 1,
                    .inputs = all,
                    .outputs = &y,
                    .n_extra = m - 1,
                    .inner = &x,
                    .epilogue = &e,
                    .features = features,
                    .threads = 1,
                    .plan = &pool};
    ok = ok && ln_epilogue_prepare(&e, &call) == LINNET_OK;
    ok = ok && e.clamp_only == (kind == 0);
    ln_buffers c_buffers = {.inputs = extra, .outputs = (void *[]){got.data}};
    int64_t th = 1 + random_below(9), tw = 1 + random_below((int)columns);
    guarded tile_data = guarded_new((size_t)(th * (tw + 3)) * 4, false);
    float *t = tile_data.data;
    for (int64_t r0 = 0; r0 < rows && ok; r0 += th)
        for (int64_t c0 = 0; c0 < columns; c0 += tw) {
            int64_t rn = ln_min(th, rows - r0), cn = ln_min(tw, columns - c0), stride = random_below(2) ? tw + 3 : cn;
            if (rn == th && stride != cn) stride = cn + 3 <= tw + 3 ? cn + 3 : cn;
            for (int64_t i = 0; i < rn; i++)
                memcpy(t + i * stride, data[tile] + (r0 + i) * columns + c0, (size_t)cn * 4);
            ln_epilogue_apply(&call, &c_buffers, r0, rn, c0, cn, t, stride);
        }
    ok = ok && memcmp(got.data, expected.data, bytes_of(&y)) == 0;
    comparisons++;
    if (!ok) {
        fprintf(stderr, "FAIL epilogue kind %d features %x layout %d [%d, %d, %d, %d]\n", kind, (unsigned)features,
                layout, (int)n, (int)c, (int)h, (int)w);
        failures++;
    }
    free(scratch);
    for (int i = 0; i < n_inputs; i++) guarded_free(&buffers[i]);
    guarded_free(&expected), guarded_free(&got), guarded_free(&tile_data);
    quant_free(q), quant_free(q_axis);
    ln_pool_free(&pool);
}

static void test_epilogues(void) {
    for (const ln_isa_set *set = ln_isa_sets; set->name[0] != 0; set++)
        for (int kind = 0; kind < 4 + 2 * ACTIVATIONS; kind++)
            for (int round = 0; round < (kind < 4 ? 24 : 6); round++)
                epilogue_case(set->most & machine_features(), kind, round % 2, 1 + random_below(2),
                              1 + random_below(round < 4 ? 2 : 150), 1 + random_below(8), 1 + random_below(90));
}

/* ---- accuracy, against the host's libm in f64 ---- */

static double ulps(float got, double want) {
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : 1e9;
    if (isinf((float)want) || isinf(got))
        return got == (float)want || (isinf(got) && fabs(want) > 3.4028234e38) ? 0 : 1e9;
    int e;
    frexp(want, &e);
    return fabs((double)got - want) / ldexp(1.0, e - 24 < -149 ? -149 : e - 24);
}

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }

static void test_accuracy(bool print) {
    static const struct {
        const char *name;
        float (*own)(float);
        double (*libm)(double);
        double bound;
    } functions[] = {{"exp", ln_exp_f, exp, 1.1},        {"sigmoid", ln_sigmoid_f, sigmoid, 2.6},
                     {"tanh", ln_tanh_f, tanh, 1.6},     {"erf", ln_erf_f, erf, 1.5},
                     {"log", ln_log_f, log, 0.51},       {"log1p", ln_log1p_f, log1p, 0.51},
                     {"expm1", ln_expm1_f, expm1, 0.51}, {"sinh", ln_sinh_f, sinh, 0.51},
                     {"cosh", ln_cosh_f, cosh, 0.51},    {"asinh", ln_asinh_f, asinh, 0.51},
                     {"acosh", ln_acosh_f, acosh, 0.51}, {"atanh", ln_atanh_f, atanh, 0.51},
                     {"sin", ln_sin_f, sin, 0.51},       {"cos", ln_cos_f, cos, 0.51},
                     {"tan", ln_tan_f, tan, 0.51},       {"asin", ln_asin_f, asin, 0.51},
                     {"acos", ln_acos_f, acos, 0.51},    {"atan", ln_atan_f, atan, 0.51},
                     {"floor", ln_floor_f, floor, 0},    {"ceil", ln_ceil_f, ceil, 0},
                     {"round", ln_round_f, rint, 0},     {"trunc", ln_trunc_f, trunc, 0}};
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        double worst = 0;
        float at = 0;
        for (uint64_t u = 0; u < 0x100000000u; u += 4099) { /* a prime step, which visits every exponent */
            float x = ln_from_bits_f((uint32_t)u), y = functions[f].own(x);
            double want = functions[f].libm((double)x), e = ulps(y, want);
            if (y == 0 && want == 0 && !signbit(y) != !signbit(want)) e = 1e9;
            if (e > worst) worst = e, at = x;
        }
        comparisons++;
        if (worst > functions[f].bound) {
            fprintf(stderr, "FAIL %s: %.3f ulp at %.9g\n", functions[f].name, worst, (double)at);
            failures++;
        }
        if (print) printf("%-8s %.3f ulp (at %.9g)\n", functions[f].name, worst, (double)at);
    }
    static const float specials[] = {0.0f, -0.0f,    1,         -1,  2,      -2,    0.5f,       3,
                                     -3,   INFINITY, -INFINITY, NAN, 1e-45f, 1e30f, 16777216.0f};
    double worst[2] = {0};
    for (int i = 0; i < 400000; i++) {
        float a = ln_from_bits_f(random_u32()), b = ln_from_bits_f(random_u32());
        if (i < 225)
            a = specials[i / 15], b = specials[i % 15];
        else if (i % 2)
            a = (float)(random_unit() * 20), b = (float)(random_below(100) - 50) / (float)(1 << random_below(4));
        worst[0] = fmax(worst[0], ulps(ln_pow_f(a, b), pow((double)a, (double)b)));
        worst[1] = fmax(worst[1], ulps(ln_atan2_f(a, b), atan2((double)a, (double)b)));
    }
    comparisons++;
    if (worst[0] > 0.51 || worst[1] > 0.51) {
        fprintf(stderr, "FAIL pow %.3f, atan2 %.3f ulp\n", worst[0], worst[1]);
        failures++;
    }
    if (print) printf("pow      %.3f ulp\natan2    %.3f ulp\n", worst[0], worst[1]);
}

int main(int argc, char **argv) {
    read_only(&argc, argv);
    bool print = argc > 1 && strcmp(argv[1], "--ulp") == 0;
    test_accuracy(print);
    test_opcodes();
    test_activations();
    test_memory();
    test_broadcast();
    test_quantized();
    test_sums();
    test_ties();
    test_in_place();
    test_epilogues();
    return report("test_map");
}
