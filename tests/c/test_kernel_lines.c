/* test_kernel_lines.c - the lines of the kernels against their code: for every op, calls with all dtypes and layouts,
 * each run and compared with the reference. A kernel whose line names a dtype or a layout that no call reached is a
 * failure. */
#include "compare.h"
#include "base/layout.h"
#include "dispatch/dispatch.h"
#include "kernel/infer.h"
#include "ops/recurrent.h"

enum { MOST_KERNELS = 512, C = 16 };
static ln_call_kinds reached[MOST_KERNELS];

/* Notes what a call that the kernel takes has. A dim of 1 could give a tensor two layouts, so no case has one. */
static void note(const ln_kernel *kernel, const ln_call *call) {
    const ln_call_kinds kinds = ln_kinds_of(call);
    ln_call_kinds *all = &reached[kernel - ln_kernels];
    for (int i = 0; i < 2; i++) all->takes[i] |= kinds.takes[i];
    all->gives |= kinds.gives;
    all->layouts_taken |= kinds.layouts_taken, all->layouts_given |= kinds.layouts_given;
}

/* The same call with gaps between its lines, in the operand or in the result: only asked, not run. */
static void note_strided(const ln_kernel *kernel, const ln_call *call) {
    note(kernel, call);
    for (int output = 0; output < 2; output++) {
        ln_tensor inputs[MAX_TEST_OPERANDS], y = call->outputs[0];
        ln_call apart = *call;
        memcpy(inputs, call->inputs, (size_t)call->n_inputs * sizeof *inputs);
        ln_tensor *t = output ? &y : &inputs[0];
        for (int i = 0; i < t->rank; i++)
            if (t->strides[i] > 1) t->strides[i] *= 2;
        apart.inputs = inputs;
        if (output) apart.outputs = apart.inner = &y, apart.n_outputs = 1;
        if (takes(kernel, &apart)) note(kernel, &apart);
    }
}

static const ln_quant *quant(int dtype) {
    static const float scale = 0.02f;
    static const ln_quant one = {.scheme = LN_QUANT_TENSOR, .count = 1, .scale = &scale};
    return ln_dtype_is_float(dtype) || ln_dtype_bits(dtype) > 16 || dtype == LINNET_BOOL ? NULL : &one;
}

/* Compares all kernels if the op is defined for the dtypes. */
static void attempt(test_case *t) {
    for (int i = 0; i < t->n_inputs; i++)
        if (t->inputs[i].quant == NULL) t->inputs[i].quant = quant(t->inputs[i].dtype);
    ln_tensor outputs[2] = {t->outputs[0], t->outputs[1]};
    ln_infer infer = {.op = &ln_ops[t->op],
                      .attributes = t->attributes,
                      .n_inputs = t->n_inputs,
                      .n_outputs = t->n_outputs,
                      .inputs = t->inputs,
                      .outputs = outputs};
    if (ln_infer_outputs(&infer) != LINNET_OK) return;
    t->outputs[0].quant = quant(outputs[0].dtype);
    outputs[0].quant = t->outputs[0].quant;
    for (int o = 0; o < t->n_outputs; o++) ln_set_layout(&outputs[o], outputs[o].rank >= 3 ? t->y_layout : 0);
    const ln_call call = {.op = &ln_ops[t->op],
                          .attributes = t->attributes,
                          .n_inputs = t->n_inputs,
                          .n_outputs = t->n_outputs,
                          .inputs = t->inputs,
                          .outputs = outputs,
                          .inner = outputs};
    if (takes(reference_of(t->op), &call)) compare(t);
}

typedef struct kind {
    int x, w, y, x_layout, y_layout;
    int variant;
} kind;

static test_case of(const kind *k, int op, const void *attributes, int n_inputs) {
    return (test_case){.name = linnet_dtype_name(k->x),
                       .op = (uint16_t)op,
                       .attributes = attributes,
                       .n_inputs = n_inputs,
                       .n_outputs = 1,
                       .y_layout = k->y_layout,
                       .tolerance = 1e-4};
}

static const int64_t ones[2] = {1, 1}, twos[2] = {2, 2}, zeros[4] = {0};

/* Variants: a product, a depthwise conv; constant weights. */
static void conv(const kind *k) {
    const int64_t group = k->variant & 1 ? C : 1;
    const ln_conv_attributes a = {.strides = {ones, 2},
                                  .dilations = {ones, 2},
                                  .pads = {zeros, 4},
                                  .group = group,
                                  .channel_axis = 1,
                                  .output_dtype = k->y == k->x ? LINNET_NONE : k->y};
    test_case t = of(k, LN_OP_CONV, &a, 2);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    t.inputs[1] = TENSOR(k->w, LN_LAYOUT_DENSE, C, C / group, 3, 3);
    t.constant[1] = k->variant >> 1;
    if (k->w == LINNET_F16 && group == 1) t.tolerance = 4e-2; /* Winograd's method with sums of f16 */
    attempt(&t);
}

static void conv_transpose(const kind *k) {
    const int64_t group = k->variant & 1 ? C : 1, side = k->variant & 4 ? 3 : 2;
    const ln_conv_transpose_attributes a = {.strides = {ones, 2},
                                            .dilations = {ones, 2},
                                            .pads = {zeros, 4},
                                            .output_padding = {zeros, 2},
                                            .group = group,
                                            .channel_axis = 1,
                                            .output_dtype = k->y == k->x ? LINNET_NONE : k->y};
    test_case t = of(k, LN_OP_CONV_TRANSPOSE, &a, 2);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 4, 5);
    t.inputs[1] = TENSOR(k->w, LN_LAYOUT_DENSE, C, C / group, side, side);
    t.constant[1] = k->variant >> 1 & 1;
    attempt(&t);
}

static void conv_gradient(const kind *k) {
    const int64_t group = k->variant & 1 ? C : 1;
    const int64_t side = k->variant & 2 ? 3 : 2, kernel[] = {side, side};
    const ln_conv_gradient_attributes a = {.kernel = {kernel, 2},
                                           .strides = {ones, 2},
                                           .dilations = {ones, 2},
                                           .pads = {zeros, 4},
                                           .group = group,
                                           .channel_axis = 1};
    test_case t = of(k, LN_OP_CONV_GRADIENT, &a, 2);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 4, 5);
    t.inputs[1] = TENSOR(k->w, k->x_layout, 2, C, 5 - side, 6 - side);
    attempt(&t);
}

static void matmul(const kind *k) {
    const ln_matmul_attributes a = {.output_dtype = k->y == k->x ? LINNET_NONE : k->y};
    test_case t = of(k, LN_OP_MATMUL, &a, 2);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 3, 5, 12);
    t.inputs[1] = TENSOR(k->w, LN_LAYOUT_DENSE, 12, 18);
    t.constant[1] = k->variant;
    attempt(&t);
}

static void attention(const kind *k) {
    const ln_attention_attributes a = {.causal = k->variant};
    test_case t = of(k, LN_OP_ATTENTION, &a, 3);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    t.inputs[1] = t.inputs[2] = TENSOR(k->w, LN_LAYOUT_DENSE, 2, C, 5, 7);
    t.tolerance = k->x == LINNET_F32 ? 1e-4 : 1e-2;
    attempt(&t);
}

/* One direction; the cells of an RNN, whose gradient needs the fewest operands. */
static void recurrent(const kind *k) {
    static const int64_t tanh_only[] = {LN_ACTIVATION_TANH};
    const ln_recurrent_attributes a = {.kind = LN_RECURRENT_KIND_RNN, .activations = {tanh_only, 1}};
    test_case t = of(k, LN_OP_RECURRENT, &a, 2);
    t.inputs[0] = TENSOR(k->x, LN_LAYOUT_DENSE, 3, 2, C);
    t.inputs[1] = TENSOR(k->w, LN_LAYOUT_DENSE, 1, C, C);
    t.constant[1] = k->variant;
    attempt(&t);
}

static void recurrent_gradient(const kind *k) {
    const ln_recurrent_gradient_attributes a = {.kind = LN_RECURRENT_GRADIENT_KIND_RNN};
    test_case t = of(k, LN_OP_RECURRENT_GRADIENT, &a, LN_GRAD_DY + 1);
    t.inputs[LN_GRAD_WEIGHTS] = TENSOR(k->x, LN_LAYOUT_DENSE, 1, C, C);
    t.inputs[LN_GRAD_GATES] = TENSOR(k->w, LN_LAYOUT_DENSE, 3, 2, C);
    t.inputs[LN_GRAD_DY] = TENSOR(k->x, LN_LAYOUT_DENSE, 3, 1, 2, C);
    attempt(&t);
}

static void pool(const kind *k) {
    const ln_pool_attributes a = {.kind = k->variant & 1,
                                  .kernel = {twos, 2},
                                  .strides = {ones, 2},
                                  .dilations = {ones, 2},
                                  .pads = {zeros, 4},
                                  .channel_axis = 1};
    test_case t = of(k, LN_OP_POOL, &a, 1);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    attempt(&t);
}

static void pool_gradient(const kind *k) {
    const ln_pool_gradient_attributes a = {.kind = k->variant & 1,
                                           .kernel = {twos, 2},
                                           .strides = {ones, 2},
                                           .dilations = {ones, 2},
                                           .pads = {zeros, 4},
                                           .channel_axis = 1};
    test_case t = of(k, LN_OP_POOL_GRADIENT, &a, 2);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    t.inputs[1] = TENSOR(k->w, k->x_layout, 2, C, 5, 6);
    attempt(&t);
}

static void softmax(const kind *k) {
    const ln_softmax_attributes a = {.axis = k->variant & 1 ? 1 : 3};
    test_case t = of(k, LN_OP_SOFTMAX, &a, 1);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    attempt(&t);
}

static void layer_norm(const kind *k) {
    const ln_layer_norm_attributes a = {.axis = -1, .epsilon = 1e-5};
    test_case t = of(k, LN_OP_LAYER_NORM, &a, 3);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    t.inputs[1] = t.inputs[2] = TENSOR(k->w, LN_LAYOUT_DENSE, 7);
    attempt(&t);
}

static void group_norm(const kind *k) {
    const ln_group_norm_attributes a = {.groups = 4, .epsilon = 1e-5, .channel_axis = 1};
    test_case t = of(k, LN_OP_GROUP_NORM, &a, 3);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    t.inputs[1] = t.inputs[2] = TENSOR(k->w, LN_LAYOUT_DENSE, C);
    attempt(&t);
}

static void batch_norm(const kind *k) {
    const ln_batch_norm_attributes a = {.epsilon = 4, .channel_axis = 1}; /* variances may be below 0 */
    test_case t = of(k, LN_OP_BATCH_NORM, &a, 5);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    for (int i = 1; i < 5; i++) t.inputs[i] = TENSOR(k->w, LN_LAYOUT_DENSE, C);
    attempt(&t);
}

static void moments(const kind *k) {
    const ln_moments_attributes a = {.kind = k->variant & 1 ? LN_MOMENTS_KIND_PRODUCTS : LN_MOMENTS_KIND_STATISTICS,
                                     .channel_axis = 1};
    test_case t = of(k, LN_OP_MOMENTS, &a, k->variant & 1 ? 3 : 1);
    t.n_outputs = 2;
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    t.inputs[1] = TENSOR(k->w, k->x_layout, 2, C, 6, 7);
    t.inputs[2] = TENSOR(k->w, LN_LAYOUT_DENSE, C);
    attempt(&t);
}

static void resize(const kind *k) {
    static const int64_t sizes[] = {2, C, 9, 11};
    const ln_resize_attributes a = {.mode = LN_RESIZE_MODE_LINEAR, .sizes = {sizes, 4}};
    test_case t = of(k, LN_OP_RESIZE, &a, 1);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    t.tolerance = 1e-3;
    attempt(&t);
}

static void cast(const kind *k) {
    const ln_cast_attributes a = {.dtype = k->y};
    test_case t = of(k, LN_OP_CAST, &a, 1);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    attempt(&t);
}

static void quantize(const kind *k) {
    const ln_quantize_attributes a = {.dtype = k->y, .axis = 1};
    test_case t = of(k, LN_OP_QUANTIZE, &a, k->variant > 0 ? 2 : 1);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    t.inputs[1] = TENSOR(k->w, LN_LAYOUT_DENSE, k->variant == 2 ? 1 : C);
    attempt(&t);
}

static void dequantize(const kind *k) {
    const ln_dequantize_attributes a = {.dtype = k->y, .axis = 1};
    test_case t = of(k, LN_OP_DEQUANTIZE, &a, k->variant & 1 ? 2 : 1);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    t.inputs[1] = TENSOR(k->w, LN_LAYOUT_DENSE, C);
    attempt(&t);
}

static void reduce(const kind *k) {
    static const int64_t axes[] = {2};
    static const int64_t kinds[] = {LN_REDUCE_KIND_SUM, LN_REDUCE_KIND_ARGMAX, LN_REDUCE_KIND_MAX};
    const ln_reduce_attributes a = {.kind = kinds[k->variant], .axes = {axes, 1}, .keep_dims = 1};
    test_case t = of(k, LN_OP_REDUCE, &a, 1);
    t.outputs[0].dtype = (uint8_t)k->y; /* as the file declares it, for stored integers */
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    attempt(&t);
}

static void copy(const kind *k) {
    const ln_copy_attributes a = {.kind = LN_COPY_KIND_IDENTITY};
    test_case t = of(k, LN_OP_COPY, &a, 1);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    attempt(&t);
}

static void map(const kind *k) {
    static const int64_t program[] = {LN_MAP_LOAD, LINNET_F32, 0, 0, 0, LN_MAP_STORE, LINNET_F32, 0, 0, 0};
    const int64_t dtypes[] = {k->y};
    const ln_map_attributes a = {.program = {program, 10}, .dtypes = {dtypes, 1}};
    test_case t = of(k, LN_OP_MAP, &a, 1);
    t.inputs[0] = TENSOR(k->x, k->x_layout, 2, C, 6, 7);
    attempt(&t);
}

/* Whether the dtype of input 1, and an attribute with the dtype of the result, are of interest; number of variants. */
static const struct {
    void (*run)(const kind *k);
    bool w, y;
    int variants;
} families[] = {
    {conv, true, true, 4},
    {conv_transpose, true, true, 8},
    {conv_gradient, true, false, 4},
    {matmul, true, true, 2},
    {attention, true, false, 2},
    {recurrent, true, false, 2},
    {recurrent_gradient, true, false, 1},
    {pool, false, false, 2},
    {pool_gradient, true, false, 2},
    {softmax, false, false, 2},
    {layer_norm, true, false, 1},
    {group_norm, true, false, 1},
    {batch_norm, true, false, 1},
    {moments, true, false, 2},
    {resize, false, false, 1},
    {cast, false, true, 1},
    {quantize, true, true, 3},
    {dequantize, true, true, 2},
    {reduce, false, true, 3},
    {copy, false, false, 1},
    {map, false, true, 1},
};

static int missing(const char *kernel, const char *what, unsigned listed, unsigned got, unsigned all) {
    if ((listed & all) == all) return 0; /* the line makes no statement */
    for (int bit = 0; bit < 16; bit++)
        if (listed & ~got & 1u << bit)
            fprintf(stderr, "FAIL %s: its line lists %s %s, but it takes no such call\n", kernel, what,
                    all == 0xFFFF ? linnet_dtype_name(bit)
                    : bit == 7    ? "views"
                    : bit         ? "channels-last"
                                  : "dense");
    return (listed & ~got) != 0;
}

int main(int argc, char **argv) {
    read_only(&argc, argv);
    reached_by = note_strided;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (kind k = {.x = 1}; k.x <= LN_LAST_DTYPE; k.x++)
            for (k.w = families[f].w ? 1 : LN_LAST_DTYPE; k.w <= LN_LAST_DTYPE; k.w++)
                for (k.y = families[f].y ? 1 : LN_LAST_DTYPE; k.y <= LN_LAST_DTYPE; k.y++)
                    for (k.variant = 0; k.variant < families[f].variants; k.variant++)
                        for (int layouts = 0; layouts < 4; layouts++) {
                            k.x_layout = layouts & 1, k.y_layout = layouts >> 1;
                            families[f].run(&k);
                        }
    for (const ln_kernel *k = ln_kernels; k->code != NULL && only_dtype == LINNET_NONE; k++) {
        const ln_call_kinds *r = &reached[k - ln_kernels];
        if ((k->flags & LN_KERNEL_REFERENCE) || !can_run(k)) continue;
        /* Plans may keep f16 values in f32 beside f16 weights. Shape rules refuse such calls, so tests/test_f16_sums.py
         * makes them; only their results may have gaps. */
        const bool halves = k->takes[1] == (1u << LINNET_F16 | 1u);
        const unsigned kept = 1u | (halves ? 1u << LINNET_F32 : 0);
        failures += missing(k->name, "x", k->takes[0], r->takes[0] | kept, 0xFFFF) +
                    missing(k->name, "w", k->takes[1], r->takes[1] | 1u, 0xFFFF) +
                    missing(k->name, "y", k->gives, r->gives | kept, 0xFFFF) +
                    missing(k->name, "x", k->layouts_taken, r->layouts_taken, 0xFF) +
                    missing(k->name, "y", k->layouts_given, r->layouts_given | (halves ? LN_STRIDED : 0u), 0xFF);
    }
    return report("kernel_lines");
}
