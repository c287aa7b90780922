/* test_conv.c - conv and conv_transpose of every kernel against the reference: groups, 1-D to 3-D, floats and
 * integers. */
/* Tests the dense conv kernels with random geometry; depthwise convolution has its own test. */
#include "compare.h"

static int wide_bias(int dtype) {
    return dtype == LINNET_I16 ? LINNET_I64 : ln_dtype_is_float(dtype) ? dtype : LINNET_I32;
}

static void one(bool transposed, int dtype, int y_dtype, int rank, int group, int in_group, int out_group, int requant,
                bool constant) {
    int spatial = rank - 2;
    int64_t dims[5] = {2, group * in_group}, w_dims[5], strides[3], dilations[3], pads[6], extra[3];
    w_dims[0] = transposed ? group * in_group : group * out_group;
    w_dims[1] = transposed ? out_group : in_group;
    for (int i = 0; i < spatial; i++) {
        int64_t kernel = w_dims[2 + i] = 1 + random_below(4);
        strides[i] = 1 + random_below(3), dilations[i] = 1 + random_below(2);
        pads[i] = random_below((int)kernel), pads[spatial + i] = random_below((int)kernel);
        extra[i] = random_below((int)strides[i]);
        dims[2 + i] = (kernel - 1) * dilations[i] + 1 + random_below(rank == 5 ? 3 : 11);
    }
    int auto_pad = random_below(4);
    const bool side_by_side = transposed && group == 1 && random_below(3) == 0; /* windows meet and do not overlap */
    for (int i = 0; i < spatial && side_by_side; i++)
        strides[i] = w_dims[2 + i], dilations[i] = 1, pads[i] = pads[spatial + i] = extra[i] = auto_pad = 0;
    if (side_by_side && random_below(2)) dims[rank - 1] = 56 + random_below(9); /* lines that are products */
    ln_conv_attributes conv = {.strides = {strides, spatial},
                               .dilations = {dilations, spatial},
                               .pads = {pads, 2 * spatial},
                               .group = group,
                               .auto_pad = auto_pad,
                               .channel_axis = 1,
                               .requant = requant,
                               .output_dtype = y_dtype};
    ln_conv_transpose_attributes transpose = {.strides = conv.strides,
                                              .dilations = conv.dilations,
                                              .pads = conv.pads,
                                              .group = group,
                                              .auto_pad = auto_pad,
                                              .channel_axis = 1,
                                              .requant = requant,
                                              .output_dtype = y_dtype,
                                              .output_padding = {extra, spatial}};
    bool integer = !ln_dtype_is_float(dtype);
    char name[200];
    snprintf(name, sizeof name, "%s %s to %s rank %d g%d %d->%d mode %d auto_pad %d%s",
             transposed ? "conv_transpose" : "conv", linnet_dtype_name(dtype), linnet_dtype_name(y_dtype), rank, group,
             in_group, out_group, requant, auto_pad, constant ? "" : " variable");
    test_case t = {.name = name,
                   .op = transposed ? LN_OP_CONV_TRANSPOSE : LN_OP_CONV,
                   .n_inputs = 3,
                   .n_outputs = 1,
                   .attributes = transposed ? (const void *)&transpose : (const void *)&conv,
                   .y_layout = LN_LAYOUT_CHANNELS_LAST,
                   .tolerance = 2e-5};
    t.inputs[0] = tensor_of(dtype, LN_LAYOUT_CHANNELS_LAST, rank, dims);
    const bool wide = dtype == LINNET_I16 && random_below(2);
    t.inputs[1] = tensor_of(wide ? LINNET_I16 : integer ? LINNET_I8 : dtype, LN_LAYOUT_DENSE, rank, w_dims);
    t.inputs[2] = TENSOR(wide_bias(dtype), LN_LAYOUT_DENSE, group * out_group);
    t.constant[1] = t.constant[2] = constant;
    /* Of i16, the kernel takes weights that are known and whose sums are sure to fit in 32 bits. */
    int64_t products = ln_count(&t.inputs[1]) / w_dims[1] / group;
    if (transposed && !side_by_side && (dtype != LINNET_I16 || (constant && products < 480)))
        t.expect = "conv_transpose_gather";
    if (random_below(4) == 0) t.inputs[2].dtype = LINNET_NONE;
    if (integer) {
        int zero = dtype == LINNET_I16 ? 0 : dtype == LINNET_U8 ? 131 : -7, channels = group * out_group;
        t.inputs[0].quant = quant_of(1, 0, 0.01, 0.02, zero, zero);
        t.inputs[1].quant = quant_of(random_below(2) ? channels : 1, transposed, 0.001, 0.004, 0, 0);
        t.outputs[0].quant = quant_of(1, 0, 0.05, 0.1,
                                      y_dtype == LINNET_U8   ? 120
                                      : y_dtype == LINNET_I8 ? 3
                                                             : 0,
                                      y_dtype == LINNET_U8   ? 120
                                      : y_dtype == LINNET_I8 ? 3
                                                             : 0);
    }
    compare(&t);
    quant_free(t.inputs[0].quant), quant_free(t.inputs[1].quant), quant_free(t.outputs[0].quant);
}

int main(int argc, char **argv) {
    read_only(&argc, argv);
    static const int dtypes[] = {LINNET_F32, LINNET_F16, LINNET_BF16, LINNET_I8, LINNET_U8, LINNET_I16};
    static const int channels[] = {1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 24, 33};
    const int rounds = argc > 1 ? atoi(argv[1]) : 12;
    for (int i = 0; i < 40 * rounds; i++) {
        int dtype = dtypes[random_below(6)], group = random_below(3) ? 1 : 1 + random_below(4);
        int y_dtype = ln_dtype_is_float(dtype) || random_below(2) ? dtype : random_below(2) ? LINNET_F32 : LINNET_I32;
        one(i % 2, dtype, y_dtype, 3 + random_below(3), group, channels[random_below(group > 1 ? 6 : 12)],
            channels[random_below(group > 1 ? 6 : 12)], random_below(3), random_below(3) > 0);
    }
    for (int i = 0; i < 4 * rounds; i++) { /* depthwise transposed convolutions of integers */
        int dtype = dtypes[3 + random_below(3)], y_dtype = random_below(2) ? dtype : LINNET_F32;
        one(true, dtype, y_dtype, 3 + random_below(3), channels[1 + i % 11], 1, 1, random_below(3),
            random_below(3) > 0);
    }
    return report("conv");
}
