/* test_copy.c - every kind of `copy` against an independent definition, then the fast implementations against the
 * reference: element sizes 1, 2, 4, 8, both layouts on both sides, shapes with 0, 1, primes and whole tiles. */
#include "compare.h"

#include "base/layout.h"
#include "generated/op_table.h"

typedef struct copy_case {
    ln_copy_attributes a;
    int64_t lists[6][16];
    int repeats[LN_MAX_RANK];
} copy_case;

/* Finds the origin of element `at` of output o: the input number (or -1: the pad value) and the coordinates in it. */
static int origin(const test_case *t, int o, const int64_t *at, int64_t *from) {
    const ln_copy_attributes *a = t->attributes;
    const ln_tensor *x = &t->inputs[0], *y = &t->outputs[o];
    int axis = ln_axis(a->axis, y->rank);
    int64_t flat = 0, b = a->block;
    memcpy(from, at, sizeof(int64_t) * LN_MAX_RANK);
    switch (a->kind) {
    case LN_COPY_KIND_RESHAPE:
    case LN_COPY_KIND_SQUEEZE:
    case LN_COPY_KIND_UNSQUEEZE:
        for (int d = 0; d < y->rank; d++) flat = flat * y->dims[d] + at[d];
        for (int d = x->rank - 1; d >= 0; d--) {
            from[d] = flat % x->dims[d];
            flat /= x->dims[d];
        }
        return 0;
    case LN_COPY_KIND_TRANSPOSE:
        for (int d = 0; d < y->rank; d++) from[a->perm.n ? a->perm.v[d] : y->rank - 1 - d] = at[d];
        return 0;
    case LN_COPY_KIND_CONCAT:
        for (int i = 0; i < t->n_inputs; i++) {
            if (from[axis] < t->inputs[i].dims[axis]) return i;
            from[axis] -= t->inputs[i].dims[axis];
        }
        return -2;
    case LN_COPY_KIND_SPLIT:
        for (int i = 0; i < o; i++) from[axis] += t->outputs[i].dims[axis];
        return 0;
    case LN_COPY_KIND_SLICE: /* all axes are listed, with starts inside the tensor */
        for (int d = 0; d < y->rank; d++) {
            int64_t start = a->starts.v[d] < 0 ? a->starts.v[d] + x->dims[d] : a->starts.v[d];
            from[d] = (start > x->dims[d] - 1 && a->steps.v[d] < 0 ? x->dims[d] - 1 : start) + at[d] * a->steps.v[d];
        }
        return 0;
    case LN_COPY_KIND_PAD:
        for (int d = 0; d < y->rank; d++) {
            int64_t low = ln_max(0, -a->pads.v[d]), n = x->dims[d] - low - ln_max(0, -a->pads.v[y->rank + d]);
            int64_t i = at[d] - ln_max(0, a->pads.v[d]);
            if (i < 0 || i >= n) {
                if (a->pad_mode == LN_COPY_PAD_MODE_CONSTANT) return -1;
                if (a->pad_mode == LN_COPY_PAD_MODE_EDGE) i = i < 0 ? 0 : n - 1;
                while (i < 0 || i >= n) {
                    if (a->pad_mode == LN_COPY_PAD_MODE_WRAP)
                        i += i < 0 ? n : -n;
                    else
                        i = n == 1 ? 0 : i < 0 ? -i : 2 * (n - 1) - i;
                }
            }
            from[d] = i + low;
        }
        return 0;
    case LN_COPY_KIND_EXPAND:
        for (int d = 0; d < x->rank; d++) from[d] = x->dims[d] == 1 ? 0 : at[d + y->rank - x->rank];
        return 0;
    case LN_COPY_KIND_TILE:
        for (int d = 0; d < x->rank; d++) from[d] = at[d] % x->dims[d];
        return 0;
    case LN_COPY_KIND_DEPTH_TO_SPACE:
    case LN_COPY_KIND_SPACE_TO_DEPTH: {
        int h = axis == 1 ? 2 : 1, w = axis == 1 ? 3 : 2;
        bool to_space = a->kind == LN_COPY_KIND_DEPTH_TO_SPACE, dcr = a->depth_mode == LN_COPY_DEPTH_MODE_DCR;
        if (to_space) {
            int64_t i = at[h] % b, j = at[w] % b;
            from[h] = at[h] / b, from[w] = at[w] / b;
            from[axis] = dcr ? (i * b + j) * y->dims[axis] + at[axis] : at[axis] * b * b + i * b + j;
        } else {
            int64_t c = x->dims[axis], block = dcr ? at[axis] / c : at[axis] % (b * b);
            from[axis] = dcr ? at[axis] % c : at[axis] / (b * b);
            from[h] = at[h] * b + block / b, from[w] = at[w] * b + block % b;
        }
        return 0;
    }
    default: return 0;
    }
}

static void semantic(test_case *t) {
    guarded in[MAX_TEST_OPERANDS], out[2];
    const ln_copy_attributes *a = t->attributes;
    ln_infer infer = {.op = &ln_ops[LN_OP_COPY],
                      .attributes = a,
                      .n_inputs = t->n_inputs,
                      .n_outputs = t->n_outputs,
                      .inputs = t->inputs,
                      .outputs = t->outputs};
    bool ok = ln_infer_copy(&infer) == LINNET_OK;
    for (int i = 0; i < t->n_inputs; i++) {
        in[i] = guarded_new(bytes_of(&t->inputs[i]), false);
        for (uint64_t k = 0; k < bytes_of(&t->inputs[i]); k++) ((uint8_t *)in[i].data)[k] = (uint8_t)random_u32();
    }
    for (int o = 0; o < t->n_outputs; o++) {
        ln_set_layout(&t->outputs[o], t->outputs[o].rank >= 3 ? t->y_layout : LN_LAYOUT_DENSE);
        out[o] = guarded_new(bytes_of(&t->outputs[o]), false);
    }
    ok = ok && run_kernel(reference_of(LN_OP_COPY), t, NULL, NULL, in, out, 0, 1);
    unsigned char value[8];
    ln_store_f64(value, t->inputs[0].dtype, 0, a->value);
    size_t size = ln_dtype_size(t->inputs[0].dtype);
    for (int o = 0; o < t->n_outputs && ok; o++) {
        const ln_tensor *y = &t->outputs[o];
        for (int64_t i = 0; i < ln_count(y) && ok; i++) {
            int64_t at[LN_MAX_RANK] = {0}, from[LN_MAX_RANK], rest = i, target = 0, source = 0;
            for (int d = y->rank - 1; d >= 0; d--) {
                at[d] = rest % y->dims[d];
                rest /= y->dims[d];
                target += at[d] * y->strides[d];
            }
            int input = origin(t, o, at, from);
            const unsigned char *want = value;
            if (input >= 0) {
                const ln_tensor *x = &t->inputs[input];
                for (int d = 0; d < x->rank; d++) source += from[d] * x->strides[d];
                want = (const unsigned char *)in[input].data + (size_t)source * size;
            }
            ok = memcmp((char *)out[o].data + (size_t)target * size, want, size) == 0;
            if (!ok)
                fprintf(stderr, "FAIL %s: output %d element %lld is not what the op means\n", t->name, o, (long long)i);
        }
    }
    comparisons++;
    failures += !ok;
    for (int i = 0; i < t->n_inputs; i++) guarded_free(&in[i]);
    for (int o = 0; o < t->n_outputs; o++) guarded_free(&out[o]);
}

static const int dtypes[] = {LINNET_I8, LINNET_F16, LINNET_F32, LINNET_I64};
static const int64_t sizes[] = {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 64, 65};

static ln_tensor random_tensor(int dtype, int rank, int64_t most) {
    int64_t dims[LN_MAX_RANK];
    for (int d = 0; d < rank; d++) dims[d] = ln_min(sizes[random_below(12)], most);
    return tensor_of(dtype, rank >= 3 ? random_below(2) : 0, rank, dims);
}

static void run_case(const char *name, copy_case *c, int n_inputs, const ln_tensor *inputs, int n_outputs) {
    test_case t = {.name = name,
                   .op = LN_OP_COPY,
                   .attributes = &c->a,
                   .n_inputs = n_inputs,
                   .n_outputs = n_outputs,
                   .y_layout = random_below(2),
                   .expect = "copy_any"};
    memcpy(t.inputs, inputs, (size_t)n_inputs * sizeof *inputs);
    semantic(&t);
    compare(&t);
}

static ln_ints list(copy_case *c, int k, int n) { return (ln_ints){c->lists[k], n}; }

static void one_round(int round) {
    int dtype = dtypes[round % 4], rank = 1 + random_below(4);
    int64_t most = rank > 3 ? 17 : 65;
    ln_tensor x = random_tensor(dtype, rank, most);
    {
        copy_case c = {.a = {.kind = LN_COPY_KIND_IDENTITY}};
        run_case("identity", &c, 1, &x, 1);
    }
    {
        copy_case c = {.a = {.kind = LN_COPY_KIND_TRANSPOSE}};
        for (int d = 0; d < rank; d++) c.lists[0][d] = d;
        for (int d = rank - 1; d > 0; d--) {
            int e = random_below(d + 1);
            int64_t s = c.lists[0][d];
            c.lists[0][d] = c.lists[0][e];
            c.lists[0][e] = s;
        }
        c.a.perm = list(&c, 0, round % 5 ? rank : 0);
        run_case("transpose", &c, 1, &x, 1);
    }
    {
        copy_case c = {.a = {.kind = LN_COPY_KIND_RESHAPE}};
        ln_tensor z = tensor_of(dtype, random_below(2), 4, (int64_t[]){2 + random_below(3), 6, 4, 1 + random_below(8)});
        int64_t shapes[][4] = {
            {0, 24, -1, 1}, {-1, 8, 1, 1}, {z.dims[0], 4, -1, 6}, {0, 3, 8, -1}, {-1, z.dims[3], 2, 12}};
        memcpy(c.lists[0], shapes[round % 5], sizeof shapes[0]);
        c.a.shape = list(&c, 0, 4);
        run_case("reshape", &c, 1, &z, 1);
        ln_tensor odd = tensor_of(dtype, 1, 3, (int64_t[]){3, 4, 5}); /* these shapes have no common factors */
        copy_case e = {.a = {.kind = LN_COPY_KIND_RESHAPE}};
        e.lists[0][0] = 5, e.lists[0][1] = 2, e.lists[0][2] = 6;
        e.a.shape = list(&e, 0, 3);
        run_case("reshape without refinement", &e, 1, &odd, 1);
        copy_case u = {.a = {.kind = LN_COPY_KIND_UNSQUEEZE}};
        u.lists[0][0] = random_below(2), u.lists[0][1] = -1;
        u.a.axes = list(&u, 0, 2);
        run_case("unsqueeze", &u, 1, &x, 1);
        copy_case q = {.a = {.kind = LN_COPY_KIND_SQUEEZE}};
        run_case("squeeze", &q, 1, &x, 1);
    }
    {
        copy_case c = {.a = {.kind = LN_COPY_KIND_CONCAT, .axis = random_below(rank)}};
        ln_tensor in[4];
        for (int i = 0; i < 4; i++) {
            int64_t dims[LN_MAX_RANK];
            memcpy(dims, x.dims, sizeof dims);
            dims[c.a.axis] = random_below(20); /* also empty ones */
            in[i] = tensor_of(dtype, rank >= 3 ? random_below(2) : 0, rank, dims);
        }
        run_case("concat", &c, 4, in, 1);
    }
    {
        copy_case c = {.a = {.kind = LN_COPY_KIND_SPLIT, .axis = random_below(rank) - rank}};
        run_case("split in equal parts", &c, 1, &x, 2);
        int axis = ln_axis(c.a.axis, rank);
        c.lists[0][0] = random_below((int)x.dims[axis] + 1);
        c.lists[0][1] = x.dims[axis] - c.lists[0][0];
        c.a.shape = list(&c, 0, 2);
        run_case("split", &c, 1, &x, 2);
    }
    {
        copy_case c = {.a = {.kind = LN_COPY_KIND_SLICE}};
        for (int d = 0; d < rank; d++) {
            int64_t n = x.dims[d];
            bool back = random_below(3) == 0;
            c.lists[0][d] = back ? n - 1 - random_below((int)n) : random_below((int)n) - (random_below(2) ? n : 0);
            c.lists[1][d] = back ? -1 - n - random_below(2) : random_below(3) ? INT64_MAX : n;
            c.lists[2][d] = (back ? -1 : 1) * (1 + random_below(3));
        }
        c.a.starts = list(&c, 0, rank), c.a.ends = list(&c, 1, rank), c.a.steps = list(&c, 2, rank);
        run_case("slice", &c, 1, &x, 1);
    }
    for (int mode = 0; mode < 4; mode++) {
        copy_case c = {.a = {.kind = LN_COPY_KIND_PAD, .pad_mode = mode, .value = 3}};
        for (int d = 0; d < rank; d++) {
            c.lists[0][d] = random_below(6) - (x.dims[d] > 4 ? 2 : 0);
            c.lists[0][rank + d] = random_below(6) - (x.dims[d] > 4 ? 2 : 0);
        }
        if (rank <= 2) c.lists[0][random_below(2 * rank)] += random_below(20); /* several times around the axis */
        c.a.pads = list(&c, 0, 2 * rank);
        run_case("pad", &c, 1, &x, 1);
    }
    {
        copy_case c = {.a = {.kind = LN_COPY_KIND_EXPAND}};
        ln_tensor z = x;
        int own = rank == 4 ? 4 : rank + 1;
        for (int d = 0; d < rank; d++)
            if (random_below(2)) z.dims[d] = 1;
        ln_set_layout(&z, rank >= 3 ? random_below(2) : 0);
        for (int d = 0; d < own; d++)
            c.lists[0][d] = d < own - rank                  ? 3
                            : z.dims[d - (own - rank)] == 1 ? 1 + random_below(9)
                            : random_below(2)               ? 1
                                                            : z.dims[d - (own - rank)];
        c.a.shape = list(&c, 0, own);
        run_case("expand", &c, 1, &z, 1);
        copy_case e = {.a = {.kind = LN_COPY_KIND_TILE}};
        for (int d = 0; d < rank; d++) e.lists[0][d] = 1 + random_below(3);
        e.a.shape = list(&e, 0, rank);
        run_case("tile", &e, 1, &x, 1);
    }
    for (int k = 0; k < 4; k++) {
        int64_t b = 1 + random_below(3), c0 = 1 + random_below(20), h = 1 + random_below(9), w = 1 + random_below(9);
        bool to_space = k % 2 == 0, nchw = random_below(2);
        copy_case c = {.a = {.kind = to_space ? LN_COPY_KIND_DEPTH_TO_SPACE : LN_COPY_KIND_SPACE_TO_DEPTH,
                             .axis = nchw ? 1 : -1,
                             .block = b,
                             .depth_mode = k / 2}};
        int64_t deep = to_space ? c0 * b * b : c0, y = to_space ? h : h * b, z = to_space ? w : w * b;
        ln_tensor d = nchw ? TENSOR(dtype, random_below(2), 2, deep, y, z) : TENSOR(dtype, 0, 2, y, z, deep);
        run_case("depth", &c, 1, &d, 1);
    }
}

/* Shape rules: known results and refusals. */
static int infer_dims(const ln_copy_attributes *a, const ln_tensor *inputs, int n, ln_tensor *y) {
    memset(y, 0, sizeof *y);
    ln_infer infer = {
        .op = &ln_ops[LN_OP_COPY], .attributes = a, .n_inputs = n, .n_outputs = 1, .inputs = inputs, .outputs = y};
    return ln_infer_copy(&infer);
}

static void expect_dims(const char *name, const ln_copy_attributes *a, const ln_tensor *inputs, int n, int rank,
                        const int64_t *dims) {
    ln_tensor y;
    int status = infer_dims(a, inputs, n, &y);
    bool ok = rank == -2 ? status != LINNET_OK : status == LINNET_OK && y.rank == rank;
    for (int d = 0; ok && d < rank; d++) ok = y.dims[d] == dims[d];
    comparisons++;
    if (!ok) {
        fprintf(stderr, "FAIL shape rule: %s (status %d, rank %d: %lld %lld %lld)\n", name, status, y.rank,
                (long long)y.dims[0], (long long)y.dims[1], (long long)y.dims[2]);
        failures++;
    }
}
#define DIMS(...)                                                                                                      \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]) { __VA_ARGS__ }
#define INTS(...)                                                                                                      \
    (ln_ints) { (int64_t[]){__VA_ARGS__}, (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / 8) }

static void test_shapes(void) {
    ln_tensor dynamic = TENSOR(LINNET_F32, 0, 1, 3, 4), empty = TENSOR(LINNET_F32, 0, 0, 3),
              x = TENSOR(LINNET_F32, 0, 5, 6);
    dynamic.dims[0] = -1;
    ln_tensor shape = TENSOR(LINNET_I64, 0, 3), ranked[2] = {x, shape}, unknown = {.dtype = LINNET_F32, .rank = -1};
    expect_dims("0 copies an unknown batch, -1 is known",
                &(ln_copy_attributes){.kind = LN_COPY_KIND_RESHAPE, .shape = INTS(0, -1)}, &dynamic, 1, DIMS(-1, 12));
    expect_dims("-1 with an unknown batch", &(ln_copy_attributes){.kind = LN_COPY_KIND_RESHAPE, .shape = INTS(-1, 12)},
                &dynamic, 1, DIMS(-1, 12));
    expect_dims("reshape of an empty tensor",
                &(ln_copy_attributes){.kind = LN_COPY_KIND_RESHAPE, .shape = INTS(0, 5), .allow_zero = 1}, &empty, 1,
                DIMS(0, 5));
    expect_dims("allow_zero off copies",
                &(ln_copy_attributes){.kind = LN_COPY_KIND_RESHAPE, .shape = INTS(3, 0), .allow_zero = 0}, &x, 1, -2,
                NULL);
    expect_dims("reshape that does not fit", &(ln_copy_attributes){.kind = LN_COPY_KIND_RESHAPE, .shape = INTS(7, -1)},
                &x, 1, -2, NULL);
    expect_dims("two holes", &(ln_copy_attributes){.kind = LN_COPY_KIND_RESHAPE, .shape = INTS(-1, -1)}, &x, 1, -2,
                NULL);
    expect_dims("shape operand of unknown value", &(ln_copy_attributes){.kind = LN_COPY_KIND_RESHAPE}, ranked, 2,
                DIMS(-1, -1, -1));
    expect_dims(
        "slice from the end",
        &(ln_copy_attributes){.kind = LN_COPY_KIND_SLICE, .starts = INTS(-3), .ends = INTS(INT64_MAX), .axes = INTS(1)},
        &x, 1, DIMS(5, 3));
    expect_dims("slice backwards",
                &(ln_copy_attributes){.kind = LN_COPY_KIND_SLICE,
                                      .starts = INTS(100),
                                      .ends = INTS(INT64_MIN),
                                      .axes = INTS(0),
                                      .steps = INTS(-2)},
                &x, 1, DIMS(3, 6));
    expect_dims("slice of nothing",
                &(ln_copy_attributes){.kind = LN_COPY_KIND_SLICE, .starts = INTS(4), .ends = INTS(2), .axes = INTS(0)},
                &x, 1, DIMS(0, 6));
    expect_dims(
        "slice with a huge step",
        &(ln_copy_attributes){
            .kind = LN_COPY_KIND_SLICE, .starts = INTS(1), .ends = INTS(5), .axes = INTS(0), .steps = INTS(INT64_MAX)},
        &x, 1, DIMS(1, 6));
    expect_dims(
        "slice with the most negative step",
        &(ln_copy_attributes){
            .kind = LN_COPY_KIND_SLICE, .starts = INTS(4), .ends = INTS(-9), .axes = INTS(0), .steps = INTS(INT64_MIN)},
        &x, 1, DIMS(1, 6));
    expect_dims("slice with step 0",
                &(ln_copy_attributes){
                    .kind = LN_COPY_KIND_SLICE, .starts = INTS(1), .ends = INTS(5), .axes = INTS(0), .steps = INTS(0)},
                &x, 1, -2, NULL);
    expect_dims("slice keeps unknown axes apart",
                &(ln_copy_attributes){.kind = LN_COPY_KIND_SLICE, .starts = INTS(1), .ends = INTS(3), .axes = INTS(1)},
                &dynamic, 1, DIMS(-1, 2, 4));
    expect_dims("expand both ways", &(ln_copy_attributes){.kind = LN_COPY_KIND_EXPAND, .shape = INTS(2, 1, 6)}, &x, 1,
                DIMS(2, 5, 6));
    expect_dims("expand that does not fit", &(ln_copy_attributes){.kind = LN_COPY_KIND_EXPAND, .shape = INTS(4, 6)}, &x,
                1, -2, NULL);
    expect_dims("squeeze of a dimension that is not 1",
                &(ln_copy_attributes){.kind = LN_COPY_KIND_SQUEEZE, .axes = INTS(0)}, &x, 1, -2, NULL);
    expect_dims("unsqueeze twice at one place",
                &(ln_copy_attributes){.kind = LN_COPY_KIND_UNSQUEEZE, .axes = INTS(0, 0)}, &x, 1, -2, NULL);
    expect_dims("negative pads", &(ln_copy_attributes){.kind = LN_COPY_KIND_PAD, .pads = INTS(-1, 2, -1, 0)}, &x, 1,
                DIMS(3, 8));
    expect_dims("pads that crop too much", &(ln_copy_attributes){.kind = LN_COPY_KIND_PAD, .pads = INTS(-3, 0, -3, 0)},
                &x, 1, -2, NULL);
    expect_dims("perm that is none", &(ln_copy_attributes){.kind = LN_COPY_KIND_TRANSPOSE, .perm = INTS(0, 0)}, &x, 1,
                -2, NULL);
    expect_dims("transpose of unknown rank", &(ln_copy_attributes){.kind = LN_COPY_KIND_TRANSPOSE}, &unknown, 1, -1,
                NULL);
    expect_dims("concat that does not fit", &(ln_copy_attributes){.kind = LN_COPY_KIND_CONCAT, .axis = 0},
                (ln_tensor[]){x, empty}, 2, -2, NULL);
    ln_tensor parts[4];
    memset(parts, 0, sizeof parts);
    ln_copy_attributes uneven = {.kind = LN_COPY_KIND_SPLIT, .axis = 1};
    ln_infer infer = {.op = &ln_ops[LN_OP_COPY],
                      .attributes = &uneven,
                      .n_inputs = 1,
                      .n_outputs = 4,
                      .inputs = &x,
                      .outputs = parts};
    comparisons++;
    if (ln_infer_copy(&infer) != LINNET_OK || parts[0].dims[1] != 2 || parts[2].dims[1] != 2 || parts[3].dims[1] != 0) {
        fprintf(stderr, "FAIL shape rule: uneven split\n");
        failures++;
    }
}

int main(int argc, char **argv) {
    read_only(&argc, argv);
    test_shapes();
    for (int round = 0; round < 24; round++) one_round(round);
    return report("test_copy");
}
