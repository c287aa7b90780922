/* test_norm.c - softmax, layer, group and batch normalization: every ISA must give the bits of the reference. */
/* Tests lengths around the vector widths, 16-bit floats, and optional operands and outputs. */
#include "compare.h"

static const int dtypes[] = {LINNET_F32, LINNET_F16, LINNET_BF16};

/* across: how many lines of an axis with a stride lie beside each other; 0: the axis has stride 1. */
static void softmax(int dtype, int length, bool logarithm, bool channels_last, int across) {
    ln_softmax_attributes a = {.axis = channels_last || across ? 1 : -1, .log = logarithm};
    char name[96];
    snprintf(name, sizeof name, "softmax %s %d%s%s, across %d", linnet_dtype_name(dtype), length,
             logarithm ? " log" : "", channels_last ? " channels last" : "", across);
    test_case t = {.name = name,
                   .op = LN_OP_SOFTMAX,
                   .attributes = &a,
                   .n_inputs = 1,
                   .n_outputs = 1,
                   .tolerance = -1,
                   .y_layout = channels_last ? LN_LAYOUT_CHANNELS_LAST : LN_LAYOUT_DENSE,
                   .expect = "softmax_lines"};
    t.inputs[0] = channels_last ? TENSOR(dtype, LN_LAYOUT_CHANNELS_LAST, 2, length, 3)
                                : TENSOR(dtype, LN_LAYOUT_DENSE, 3, 2, length);
    if (across) t.inputs[0] = TENSOR(dtype, LN_LAYOUT_DENSE, 2, length, across);
    compare(&t);
}

static void layer_norm(int dtype, int length, bool rms, bool bias, bool statistics) {
    ln_layer_norm_attributes a = {.axis = -2, .epsilon = 1e-5, .rms = rms};
    char name[96];
    snprintf(name, sizeof name, "layer_norm %s 2x%d%s", linnet_dtype_name(dtype), length, rms ? " rms" : "");
    test_case t = {.name = name,
                   .op = LN_OP_LAYER_NORM,
                   .attributes = &a,
                   .n_inputs = 3,
                   .n_outputs = statistics ? 2 : 1,
                   .tolerance = -1,
                   .expect = "layer_norm_lines"};
    t.inputs[0] = TENSOR(dtype, LN_LAYOUT_DENSE, 5, 2, length);
    t.inputs[1] = TENSOR(dtype, LN_LAYOUT_DENSE, 2, length);
    t.inputs[2] = TENSOR(dtype, LN_LAYOUT_DENSE, 2, length);
    if (!bias) t.inputs[2].dtype = LINNET_NONE;
    compare(&t);
}

static void group_norm(int dtype, int channels, int groups, int plane) {
    ln_group_norm_attributes a = {.groups = groups, .epsilon = 1e-3, .channel_axis = 1};
    char name[96];
    snprintf(name, sizeof name, "group_norm %s c%d g%d plane %d", linnet_dtype_name(dtype), channels, groups, plane);
    test_case t = {.name = name,
                   .op = LN_OP_GROUP_NORM,
                   .attributes = &a,
                   .n_inputs = 3,
                   .n_outputs = 1,
                   .tolerance = -1,
                   .expect = "group_norm_planes"};
    t.inputs[0] = TENSOR(dtype, LN_LAYOUT_DENSE, 2, channels, 3, plane);
    t.inputs[1] = TENSOR(dtype, LN_LAYOUT_DENSE, channels);
    t.inputs[2] = TENSOR(dtype, LN_LAYOUT_DENSE, channels);
    compare(&t);
}

static void batch_norm(int channels, int plane, int layout) {
    ln_batch_norm_attributes a = {.epsilon = 1e-3, .channel_axis = 1};
    char name[96];
    snprintf(name, sizeof name, "batch_norm c%d plane %d layout %d", channels, plane, layout);
    float *variance = malloc((size_t)channels * sizeof *variance);
    for (int i = 0; i < channels; i++) variance[i] = (float)(random_unit() + 1.25);
    test_case t = {.name = name,
                   .op = LN_OP_BATCH_NORM,
                   .attributes = &a,
                   .n_inputs = 5,
                   .n_outputs = 1,
                   .tolerance = -1,
                   .y_layout = layout,
                   .expect = "batch_norm_rows"};
    t.inputs[0] = TENSOR(LINNET_F32, layout, 2, channels, 2, plane);
    for (int i = 1; i < 5; i++) t.inputs[i] = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, channels);
    t.given[4] = true, t.values[4] = variance;
    compare(&t);
    free(variance);
}

int main(int argc, char **argv) {
    read_only(&argc, argv);
    static const int lengths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 100, 997, 5003};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int d = 0; d < 3; d++) {
            for (int variant = 0; variant < 4; variant++) softmax(dtypes[d], lengths[i], variant & 1, variant & 2, 0);
            layer_norm(dtypes[d], lengths[i], i % 2, i % 3, i % 4 == 0);
            group_norm(dtypes[d], 6, i % 2 ? 0 : 3, lengths[i]);
        }
        for (int across = 4; across < 150 && lengths[i] < 2000; across += 1 + random_below(60))
            softmax(LINNET_F32, lengths[i], across & 1, false, across);
        if (lengths[i] < 200) batch_norm(lengths[i], 13, i % 2), batch_norm(lengths[i], 13, !(i % 2));
    }
    return report("norm");
}
