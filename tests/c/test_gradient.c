/* test_gradient.c - conv_gradient, pool_gradient and moments of every kernel against the reference: groups, strides,
 * dilations, padding, channel counts around the tiles, sums long enough to be divided, one to three spatial
 * dimensions. */
#include "compare.h"

/* `out` and `in` are channels per group. */
static void conv(int spatial, int batch, int group, int out, int in, int most, const char *expect) {
    int64_t x[5] = {batch, (int64_t)group * in}, g[5] = {batch, (int64_t)group * out}, kernel[3], strides[3],
            dilations[3], pads[6];
    for (int i = 0; i < spatial; i++) {
        kernel[i] = 1 + random_below(3), strides[i] = 1 + random_below(3), dilations[i] = 1 + random_below(2);
        if (random_below(4) == 0) kernel[i] = strides[i] = 1;
        pads[i] = random_below((int)kernel[i] + 1), pads[spatial + i] = random_below((int)kernel[i] + 1);
        const int64_t span = (kernel[i] - 1) * dilations[i] + 1;
        x[2 + i] = span + random_below(most);
        g[2 + i] = (x[2 + i] + pads[i] + pads[spatial + i] - span) / strides[i] + 1;
    }
    const ln_conv_gradient_attributes a = {.kernel = {kernel, spatial},
                                           .strides = {strides, spatial},
                                           .dilations = {dilations, spatial},
                                           .pads = {pads, 2 * spatial},
                                           .group = group,
                                           .channel_axis = 1};
    char name[160];
    snprintf(name, sizeof name, "conv_gradient %d-D b%d g%d %d x %d, x %lld, kernel %lld, stride %lld", spatial, batch,
             group, out, in, (long long)x[2], (long long)kernel[0], (long long)strides[0]);
    test_case t = {.name = name,
                   .op = LN_OP_CONV_GRADIENT,
                   .attributes = &a,
                   .n_inputs = 2,
                   .n_outputs = 1,
                   .tolerance = 2e-5,
                   .expect = expect};
    t.inputs[0] = tensor_of(LINNET_F32, LN_LAYOUT_CHANNELS_LAST, 2 + spatial, x);
    t.inputs[1] = tensor_of(LINNET_F32, LN_LAYOUT_CHANNELS_LAST, 2 + spatial, g);
    compare(&t);
}

/* Transposed convolution with one channel per group: the input gradient of a depthwise convolution. */
static void depthwise_transpose(int channels) {
    const int stride = 1 + random_below(3), dilation = stride == 1 ? 1 + random_below(2) : 1,
              kernel = 1 + random_below(5);
    int64_t pads[4] = {random_below(3), random_below(kernel), random_below(3), random_below(kernel)};
    int64_t strides[2] = {1 + random_below(2), stride}, dilations[2] = {1 + random_below(2), dilation};
    int64_t extra[2] = {random_below((int)strides[0]), random_below(stride)};
    const ln_conv_transpose_attributes a = {.strides = {strides, 2},
                                            .dilations = {dilations, 2},
                                            .pads = {pads, 4},
                                            .output_padding = {extra, 2},
                                            .group = channels,
                                            .channel_axis = 1};
    char name[160];
    snprintf(name, sizeof name, "depthwise conv_transpose c%d k%d s%d d%d", channels, kernel, stride, dilation);
    test_case t = {.name = name,
                   .op = LN_OP_CONV_TRANSPOSE,
                   .attributes = &a,
                   .n_inputs = 3,
                   .n_outputs = 1,
                   .y_layout = LN_LAYOUT_CHANNELS_LAST,
                   .tolerance = 1e-5,
                   .expect = "conv_transpose_depthwise"};
    t.inputs[0] = TENSOR(LINNET_F32, LN_LAYOUT_CHANNELS_LAST, 2, channels, 4 + random_below(5), 6 + random_below(20));
    t.inputs[1] = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, channels, 1, 3, kernel);
    t.inputs[2] = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, channels);
    t.constant[1] = t.constant[2] = random_below(2);
    if (random_below(2)) t.inputs[2].dtype = LINNET_NONE;
    compare(&t);
}

/* Transposed convolution to few channels. */
static void scattered(int in, int out) {
    const int stride = 1 + random_below(3), kernel = 2 + random_below(4);
    int64_t pads[4] = {random_below(3), random_below(kernel), random_below(3), random_below(kernel)};
    int64_t strides[2] = {1 + random_below(2), stride}, dilations[2] = {1 + random_below(2), 1};
    int64_t extra[2] = {random_below((int)strides[0]), random_below(stride)};
    const ln_conv_transpose_attributes a = {.strides = {strides, 2},
                                            .dilations = {dilations, 2},
                                            .pads = {pads, 4},
                                            .output_padding = {extra, 2},
                                            .group = 1,
                                            .channel_axis = 1};
    char name[160];
    snprintf(name, sizeof name, "conv_transpose %d to %d k%d s%d", in, out, kernel, stride);
    test_case t = {.name = name,
                   .op = LN_OP_CONV_TRANSPOSE,
                   .attributes = &a,
                   .n_inputs = 2,
                   .n_outputs = 1,
                   .y_layout = LN_LAYOUT_CHANNELS_LAST,
                   .tolerance = 1e-5,
                   .expect = "conv_transpose_scatter"};
    t.inputs[0] = TENSOR(LINNET_F32, LN_LAYOUT_CHANNELS_LAST, 2, in, 4 + random_below(5), 6 + random_below(20));
    t.inputs[1] = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, in, out, 3, kernel);
    compare(&t);
}

static void moments(int rank, bool products) {
    int64_t dims[4] = {1 + random_below(3), 1 + random_below(150), 1 + random_below(40), 1 + random_below(40)};
    const bool first = rank > 2 && random_below(2);
    const int layout = first ? LN_LAYOUT_CHANNELS_LAST : LN_LAYOUT_DENSE;
    const ln_moments_attributes a = {.kind = products, .channel_axis = first ? 1 : -1};
    const int64_t channels = dims[first ? 1 : rank - 1];
    char name[160];
    snprintf(name, sizeof name, "moments kind %d rank %d c%lld", products, rank, (long long)channels);
    test_case t = {.name = name,
                   .op = LN_OP_MOMENTS,
                   .attributes = &a,
                   .n_inputs = products ? 3 : 1,
                   .n_outputs = 2,
                   .tolerance = 2e-5,
                   .expect = "moments_channels"};
    t.inputs[0] = tensor_of(LINNET_F32, layout, rank, dims);
    t.inputs[1] = tensor_of(LINNET_F32, layout, rank, dims);
    t.inputs[2] = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, channels);
    compare(&t);
}

static void pool(int rank, int channel_axis) {
    int64_t x[5] = {1 + random_below(2)}, g[5], kernel[3], strides[3], dilations[3], pads[6];
    const int spatial = rank - 2, channels = 1 + random_below(150), ceil_mode = random_below(2);
    const ln_pool_attributes forward = {.kernel = {kernel, spatial},
                                        .strides = {strides, spatial},
                                        .dilations = {dilations, spatial},
                                        .pads = {pads, 2 * spatial},
                                        .ceil_mode = ceil_mode,
                                        .channel_axis = channel_axis};
    for (int i = 0; i < spatial; i++) {
        kernel[i] = 1 + random_below(4), strides[i] = 1 + random_below(3), dilations[i] = 1 + random_below(2);
        pads[i] = random_below((int)kernel[i]), pads[spatial + i] = random_below((int)kernel[i]);
        x[(channel_axis == 1 ? 2 : 1) + i] = (kernel[i] - 1) * dilations[i] + 1 + random_below(8);
    }
    x[channel_axis == 1 ? 1 : rank - 1] = channels;
    const ln_pool_gradient_attributes a = {.kind = random_below(2),
                                           .kernel = forward.kernel,
                                           .strides = forward.strides,
                                           .dilations = forward.dilations,
                                           .pads = forward.pads,
                                           .ceil_mode = ceil_mode,
                                           .count_include_pad = random_below(2),
                                           .channel_axis = channel_axis};
    const int layout = channel_axis == 1 ? LN_LAYOUT_CHANNELS_LAST : LN_LAYOUT_DENSE;
    ln_tensor in = tensor_of(LINNET_F32, layout, rank, x), y = {0};
    const ln_infer infer = {
        .op = &ln_ops[LN_OP_POOL], .attributes = &forward, .n_inputs = 1, .n_outputs = 1, .inputs = &in, .outputs = &y};
    if (ln_infer_pool(&infer) != LINNET_OK) return;
    for (int i = 0; i < rank; i++) g[i] = y.dims[i];
    char name[160];
    snprintf(name, sizeof name, "pool_gradient kind %d rank %d c%d axis %d ceil %d", (int)a.kind, rank, channels,
             channel_axis, ceil_mode);
    test_case t = {.name = name,
                   .op = LN_OP_POOL_GRADIENT,
                   .attributes = &a,
                   .n_inputs = 2,
                   .n_outputs = 1,
                   .y_layout = layout,
                   .tolerance = 1e-6,
                   .expect = "pool_gradient_channels"};
    t.inputs[0] = in;
    t.inputs[1] = tensor_of(LINNET_F32, layout, rank, g);
    compare(&t);
}

int main(int argc, char **argv) {
    read_only(&argc, argv);
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 13, 14, 15, 16, 17, 29, 31, 32, 33, 47, 64, 67};
    for (int i = 0; i < 120; i++)
        conv(1 + i % 3, 1 + random_below(3), 1, sizes[random_below(19)], sizes[random_below(19)], i % 3 == 2 ? 3 : 9,
             "conv_gradient_f32");
    for (int i = 0; i < 40; i++)
        conv(2, 1 + random_below(3), 2 + random_below(2), 4 + random_below(30), 1 + random_below(40), 9,
             "conv_gradient_f32");
    for (int i = 0; i < 6; i++)
        conv(2, 3, 1, sizes[random_below(19)], sizes[random_below(19)], 40, "conv_gradient_f32");
    for (int i = 0; i < 60; i++)
        conv(1 + i % 3, 1 + random_below(3), 2 + random_below(80), 1, 1, i % 3 == 2 ? 3 : 20,
             "conv_gradient_depthwise");
    for (int i = 0; i < 40; i++) depthwise_transpose(2 + random_below(70));
    for (int i = 0; i < 40; i++) scattered(1 + random_below(40), 1 + random_below(8));
    for (int i = 0; i < 60; i++) moments(2 + i % 3, i % 2 == 0);
    for (int i = 0; i < 60; i++) pool(3 + i % 3, i % 2 ? 1 : -1);
    return report("gradients");
}
