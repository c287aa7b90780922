/* test_attention.c - attention of every ISA against the reference: sizes around tiles and vectors, few queries,
 * strides, masks, causal and windowed keys, lengths, a cache, and inputs that only C can pass. */
#include "compare.h"
#include "ops/attention.h"

/* What a case has besides its sizes. */
typedef struct options {
    int dtype, mask; /* mask: its dtype, or LINNET_NONE */
    bool narrow_mask, shared_keys, lengths, past;
    ln_attention_attributes attributes;
} options;

enum { BATCH = 2, HEADS = 3, MOST = 300 };

static uint8_t seen[BATCH * 40 * MOST];

static void attention(int m, int n, int depth, int size, options o) {
    static int64_t lengths[BATCH];
    const int past = o.past ? 7 : 0, heads = o.shared_keys ? 1 : HEADS;
    char name[160];
    snprintf(name, sizeof name, "attention %s %dx%dx%dx%d mask %s%s%s%s%s causal %d window %d cap %g transposed %d",
             linnet_dtype_name(o.dtype), m, n, depth, size, linnet_dtype_name(o.mask), o.narrow_mask ? " narrow" : "",
             o.shared_keys ? " shared" : "", o.lengths ? " lengths" : "", o.past ? " past" : "",
             (int)o.attributes.causal, (int)o.attributes.window, o.attributes.cap, (int)o.attributes.key_transposed);
    test_case t = {.name = name,
                   .op = LN_OP_ATTENTION,
                   .attributes = &o.attributes,
                   .n_inputs = LN_ATTENTION_OPERANDS,
                   .n_outputs = 1,
                   .tolerance = o.dtype == LINNET_F32   ? 2e-5
                                : o.dtype == LINNET_F16 ? 2e-3
                                                        : 1e-2,
                   .expect = o.dtype == LINNET_F64 ? NULL : "attention_tiles"};
    const bool turned = o.attributes.key_transposed != 0;
    t.inputs[LN_ATTENTION_QUERY] = TENSOR(o.dtype, LN_LAYOUT_DENSE, BATCH, HEADS, m, depth);
    t.inputs[LN_ATTENTION_KEY] = turned ? TENSOR(o.dtype, LN_LAYOUT_DENSE, BATCH, heads, depth, n)
                                        : TENSOR(o.dtype, LN_LAYOUT_DENSE, BATCH, heads, n, depth);
    t.inputs[LN_ATTENTION_VALUE] = TENSOR(o.dtype, LN_LAYOUT_DENSE, BATCH, heads, n, size);
    if (o.mask != LINNET_NONE) {
        t.inputs[LN_ATTENTION_MASK] = o.narrow_mask ? TENSOR(o.mask, LN_LAYOUT_DENSE, BATCH, 1, 1, n + past)
                                                    : TENSOR(o.mask, LN_LAYOUT_DENSE, m, n + past);
        if (o.mask == LINNET_BOOL) {
            for (size_t i = 0; i < sizeof seen; ++i) seen[i] = random_below(3) != 0;
            t.given[LN_ATTENTION_MASK] = true, t.values[LN_ATTENTION_MASK] = seen;
        }
    }
    if (o.lengths) {
        t.inputs[LN_ATTENTION_LENGTHS] = TENSOR(LINNET_I64, LN_LAYOUT_DENSE, BATCH);
        lengths[0] = random_below((o.past ? past : n) + 1), lengths[1] = o.past ? past : n;
        t.given[LN_ATTENTION_LENGTHS] = true, t.values[LN_ATTENTION_LENGTHS] = lengths;
    }
    if (o.past) {
        t.inputs[LN_ATTENTION_PAST_KEY] = turned ? TENSOR(o.dtype, LN_LAYOUT_DENSE, 1, heads, depth, past)
                                                 : TENSOR(o.dtype, LN_LAYOUT_DENSE, BATCH, heads, past, depth);
        t.inputs[LN_ATTENTION_PAST_VALUE] = TENSOR(o.dtype, LN_LAYOUT_DENSE, BATCH, heads, past, size);
    }
    compare(&t);
}

/* Everything that a case can have, chosen by the bits of a number. */
static options some(uint32_t bits) {
    static const int masks[] = {LINNET_NONE, LINNET_BOOL, LINNET_NONE, LINNET_F32};
    options o = {.dtype = LINNET_F32, .mask = masks[bits & 3]};
    o.narrow_mask = bits >> 2 & 1, o.shared_keys = bits >> 3 & 1, o.lengths = bits >> 4 & 1, o.past = bits >> 5 & 1;
    o.attributes.causal = (bits >> 6 & 3) % 3;
    o.attributes.window = o.attributes.causal && bits >> 8 & 1 ? 5 : 0;
    o.attributes.cap = bits >> 9 & 1 ? 2.5 : 0;
    o.attributes.key_transposed = bits >> 10 & 1;
    o.attributes.scale = bits >> 11 & 1 ? 0.75 : 0;
    return o;
}

static void of_dtype(options o, int dtype, int m, int n, int depth, int size) {
    if (o.mask != LINNET_NONE && o.mask != LINNET_BOOL) o.mask = dtype;
    o.dtype = dtype;
    attention(m, n, depth, size, o);
}

/* An operand whose rows alternate between the matrices, or whose columns lie side by side. */
static void strided(int which) {
    const ln_attention_attributes a = {.causal = LN_ATTENTION_CAUSAL_START};
    test_case t = {.name = "strided attention",
                   .op = LN_OP_ATTENTION,
                   .attributes = &a,
                   .n_inputs = 3,
                   .n_outputs = 1,
                   .tolerance = 2e-5,
                   .expect = "attention_tiles"};
    for (int i = 0; i < 3; ++i) {
        ln_tensor *x = &t.inputs[i];
        *x = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, 2, 19, 10);
        if (which == i) x->strides[0] = 10, x->strides[1] = 20;
        if (which == 3 + i) x->strides[1] = 1, x->strides[2] = 19;
    }
    compare(&t);
}

/* The shape rule's errors. */
static void refuses(const char *part, int status, const ln_attention_attributes *a, const ln_tensor *inputs, int n) {
    ln_tensor y = {0};
    linnet_error error = {0};
    const ln_infer infer = {.op = &ln_ops[LN_OP_ATTENTION],
                            .attributes = a,
                            .n_inputs = n,
                            .n_outputs = 1,
                            .inputs = inputs,
                            .outputs = &y,
                            .error = &error};
    const linnet_status got = ln_infer_outputs(&infer);
    if ((int)got == status && strstr(error.what, part) != NULL) return;
    fprintf(stderr, "FAIL got '%s' (%d), expected '%s' (%d)\n", error.what, (int)got, part, status);
    failures++;
}

static void bad_calls(void) {
    const ln_attention_attributes plain = {0};
    const ln_tensor q = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, 2, 5, 8), none = {0};
    const ln_tensor k = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, 2, 6, 8), v = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, 2, 6, 4);
    const ln_tensor half = TENSOR(LINNET_F16, LN_LAYOUT_DENSE, 2, 6, 8);
    const ln_tensor whole = TENSOR(LINNET_I32, LN_LAYOUT_DENSE, 2, 5, 8);
    const ln_tensor short_v = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, 2, 7, 4);
    const ln_tensor mask = TENSOR(LINNET_BOOL, LN_LAYOUT_DENSE, 5, 5),
                    three = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, 3, 6, 8);
    const ln_tensor lengths = TENSOR(LINNET_I32, LN_LAYOUT_DENSE, 3), real = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, 2);
    const ln_tensor line = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, 8),
                    past_v = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, 2, 3, 5);
    const ln_tensor past_k = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, 2, 3, 8);
    refuses("query has the wrong dtype", LINNET_WRONG_DTYPE, &plain, (ln_tensor[]){whole, k, v}, 3);
    refuses("key has the wrong dtype", LINNET_WRONG_DTYPE, &plain, (ln_tensor[]){q, half, v}, 3);
    refuses("lengths has the wrong dtype", LINNET_WRONG_DTYPE, &plain, (ln_tensor[]){q, k, v, none, real}, 5);
    refuses("mask has the wrong dtype", LINNET_WRONG_DTYPE, &plain, (ln_tensor[]){q, k, v, whole}, 4);
    refuses("differ in the depth", LINNET_SHAPE_MISMATCH, &plain, (ln_tensor[]){q, v, v}, 3);
    refuses("differ in the number of keys", LINNET_SHAPE_MISMATCH, &plain, (ln_tensor[]){q, k, short_v}, 3);
    refuses("the shape of the mask does not match", LINNET_SHAPE_MISMATCH, &plain, (ln_tensor[]){q, k, v, mask}, 4);
    refuses("the shape of lengths", LINNET_SHAPE_MISMATCH, &plain, (ln_tensor[]){q, k, v, none, lengths}, 5);
    refuses("query is not a matrix", LINNET_SHAPE_MISMATCH, &plain, (ln_tensor[]){line, k, v}, 3);
    refuses("broadcast", LINNET_SHAPE_MISMATCH, &plain, (ln_tensor[]){q, three, v}, 3);
    refuses("only one of past_key", LINNET_SHAPE_MISMATCH, &plain, (ln_tensor[]){q, k, v, none, none, past_k}, 6);
    refuses("differ in the size of a value", LINNET_SHAPE_MISMATCH, &plain,
            (ln_tensor[]){q, k, v, none, none, past_k, past_v}, 7);
    refuses("window is out of range", LINNET_BAD_ATTRIBUTE, &(ln_attention_attributes){.window = 3},
            (ln_tensor[]){q, k, v}, 3);
    refuses("window is out of range", LINNET_BAD_ATTRIBUTE, &(ln_attention_attributes){.window = -3, .causal = 1},
            (ln_tensor[]){q, k, v}, 3);
    refuses("cap is out of range", LINNET_BAD_ATTRIBUTE, &(ln_attention_attributes){.cap = -1}, (ln_tensor[]){q, k, v},
            3);
    refuses("scale is out of range", LINNET_BAD_ATTRIBUTE, &(ln_attention_attributes){.scale = (double)INFINITY},
            (ln_tensor[]){q, k, v}, 3);
}

int main(int argc, char **argv) {
    read_only(&argc, argv);
    bad_calls();
    static const int rows[] = {1, 2, 3, 4, 5, 13, 14, 15, 29, 40}, keys[] = {1, 2, 15, 16, 17, 31, 127, 128, 129, 259};
    static const int depths[] = {1, 3, 8, 16, 17, 33, 64}, dtypes[] = {LINNET_F16, LINNET_BF16, LINNET_F64};
    const options plain = {.dtype = LINNET_F32, .mask = LINNET_NONE};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
        for (size_t j = 0; j < sizeof keys / sizeof *keys; ++j)
            attention(rows[i], keys[j], depths[(i + j) % 7], depths[(3 * i + j) % 7], plain);
    attention(131, 150, 16, 8, plain); /* several items of a matrix */
    for (int i = 0; i < 400; ++i)
        attention(rows[random_below(10)], keys[random_below(10)], depths[random_below(7)], depths[random_below(7)],
                  some(random_u32()));
    for (int i = 0; i < 60; ++i)
        of_dtype(some(random_u32()), dtypes[i % 3], rows[random_below(10)], keys[random_below(9)],
                 depths[random_below(7)], depths[random_below(7)]);
    for (int i = 0; i < 6; ++i) strided(i);
    attention(5, 0, 8, 8, plain); /* no keys: zeros */
    return report("attention");
}
