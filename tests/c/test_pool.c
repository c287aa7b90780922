/* test_pool.c - compares max and average pooling on every ISA with the reference; integers must be equal. Also tests
 * ONNX's size rules. */
/* Sizes, pads, strides and ceil_mode are random numbers from a fixed seed. */
#include "compare.h"

static void one(int dtype, int kind, int rank, int channel_axis) {
    int64_t dims[5] = {2}, kernel[3], strides[3], dilations[3], pads[6];
    int spatial = rank - 2, channels = 1 + random_below(random_below(3) ? 70 : 300);
    for (int i = 0; i < spatial; i++) {
        kernel[i] = 1 + random_below(4), strides[i] = 1 + random_below(3), dilations[i] = 1 + random_below(2);
        pads[i] = random_below((int)kernel[i]), pads[spatial + i] = random_below((int)kernel[i]);
        dims[(channel_axis == 1 ? 2 : 1) + i] = (kernel[i] - 1) * dilations[i] + 1 + random_below(8);
    }
    if (channel_axis == 1 &&
        random_below(3) == 0) { /* one channel, and windows that do not reach across the last axis */
        const int last = spatial - 1;
        dims[rank - 1] = channels, channels = 1;
        kernel[last] = 1, strides[last] = 1 + (random_below(4) == 0);
        pads[last] = 0, pads[spatial + last] = random_below(8) == 0;
    }
    dims[channel_axis == 1 ? 1 : rank - 1] = channels;
    ln_pool_attributes a = {.kind = kind,
                            .kernel = {kernel, spatial},
                            .strides = {strides, spatial},
                            .dilations = {dilations, spatial},
                            .pads = {pads, 2 * spatial},
                            .auto_pad = random_below(3),
                            .ceil_mode = random_below(2),
                            .count_include_pad = random_below(2),
                            .channel_axis = channel_axis};
    char name[160];
    snprintf(name, sizeof name, "pool %s kind %d rank %d c%d axis %d ceil %d include %d", linnet_dtype_name(dtype),
             kind, rank, channels, channel_axis, (int)a.ceil_mode, (int)a.count_include_pad);
    int layout = channel_axis == 1 ? LN_LAYOUT_CHANNELS_LAST : LN_LAYOUT_DENSE;
    test_case t = {.name = name,
                   .op = LN_OP_POOL,
                   .attributes = &a,
                   .n_inputs = 1,
                   .n_outputs = 1,
                   .y_layout = layout,
                   .tolerance = 1e-6,
                   .expect = "pool_channels"};
    t.inputs[0] = tensor_of(dtype, layout, rank, dims);
    if (!ln_dtype_is_float(dtype)) {
        t.inputs[0].quant = t.outputs[0].quant =
            quant_of(1, 0, 0.01, 0.02, dtype == LINNET_U8 ? 127 : -3, dtype == LINNET_U8 ? 127 : -3);
    }
    compare(&t);
    quant_free(t.inputs[0].quant);
}

/* Checks sizes from the ONNX specification and its test data. */
static void size(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int auto_pad, bool ceil_mode,
                 int64_t expected) {
    ln_pool_attributes a = {.kernel = {&kernel, 1},
                            .strides = {&stride, 1},
                            .pads = {(int64_t[]){pad, pad}, 2},
                            .auto_pad = auto_pad,
                            .ceil_mode = ceil_mode,
                            .channel_axis = 1};
    ln_tensor x = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, 1, 1, in), y = {0};
    ln_infer infer = {
        .op = &ln_ops[LN_OP_POOL], .attributes = &a, .n_inputs = 1, .n_outputs = 1, .inputs = &x, .outputs = &y};
    comparisons++;
    if (ln_infer_pool(&infer) != LINNET_OK || y.dims[2] != expected) {
        fprintf(stderr, "FAIL size of pool(%lld, k %lld, s %lld, p %lld): expected %lld, got %lld\n", (long long)in,
                (long long)kernel, (long long)stride, (long long)pad, (long long)expected, (long long)y.dims[2]);
        failures++;
    }
}

int main(int argc, char **argv) {
    read_only(&argc, argv);
    static const int dtypes[] = {LINNET_F32, LINNET_F16, LINNET_BF16, LINNET_I8, LINNET_U8, LINNET_I16};
    for (int d = 0; d < 6; d++)
        for (int kind = 0; kind < 2; kind++)
            for (int i = 0; i < 60; i++) one(dtypes[d], kind, 3 + i % 3, i % 2 ? 1 : -1);
    size(32, 3, 2, 1, 0, false, 16);
    size(4, 3, 2, 0, 0, true, 2);
    size(2, 1, 2, 0, 0, true, 1); /* the second window would begin outside the input */
    size(5, 2, 3, 1, 0, true,
         2); /* windows begin at 0 and 3 of the padded 7; one at 6 would begin in the end padding */
    size(32, 2, 1, 0, LN_POOL_AUTO_PAD_SAME_UPPER, false, 32);
    size(32, 5, 3, 0, LN_POOL_AUTO_PAD_SAME_LOWER, false, 11);
    size(32, 5, 3, 9, LN_POOL_AUTO_PAD_VALID, false, 10);
    return report("pool");
}
