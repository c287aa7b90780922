/* test_depthwise.c - compares depthwise convolution on every ISA with the reference; floats may differ by rounding,
 * integers must be equal. Tests channel counts around the vector widths, all paddings, strides and dilations, and 1-D
 * to 3-D. */
#include "compare.h"

static void one(int dtype, int y_dtype, int channels, int height, int width, int kernel, int stride, int dilation,
                int pad, int requant, bool constant) {
    char name[160];
    int groups = channels; /* each may have several output channels */
    for (int times = 2; times <= 5; times++)
        if (channels % times == 0 && channels > times && random_below(4) == 0) groups = channels / times;
    snprintf(name, sizeof name, "depthwise %s to %s c%d/%d %dx%d k%d s%d d%d p%d mode %d%s", linnet_dtype_name(dtype),
             linnet_dtype_name(y_dtype), channels, groups, height, width, kernel, stride, dilation, pad, requant,
             constant ? "" : " variable");
    int64_t strides[2] = {stride, stride}, dilations[2] = {dilation, dilation}, pads[4] = {pad, pad, pad, pad / 2};
    ln_conv_attributes a = {.strides = {strides, 2},
                            .dilations = {dilations, 2},
                            .pads = {pads, 4},
                            .group = groups,
                            .channel_axis = 1,
                            .requant = requant,
                            .output_dtype = y_dtype};
    bool integer = !ln_dtype_is_float(dtype);
    int w_dtype = integer ? (random_below(4) == 0 ? LINNET_U8 : LINNET_I8) : dtype;
    if (dtype == LINNET_I16 && random_below(2)) w_dtype = LINNET_I16;
    int bias_dtype = dtype == LINNET_I16 ? LINNET_I64 : integer ? LINNET_I32 : dtype;
    test_case t = {.name = name,
                   .op = LN_OP_CONV,
                   .attributes = &a,
                   .n_inputs = 3,
                   .n_outputs = 1,
                   .y_layout = LN_LAYOUT_CHANNELS_LAST,
                   .tolerance = 1e-5,
                   .expect = integer ? "conv_integer_depthwise__" : "conv_float_depthwise"};
    if ((channels == 1 && kernel >= 4) || (dtype == LINNET_I16 && w_dtype == LINNET_U8 && kernel > 8))
        t.expect = NULL; /* computed as a matrix product, because one channel would leave
                          * vectors mostly empty */
#if defined(__x86_64__)
    if (integer && dtype != LINNET_I16 && w_dtype == LINNET_I8 && y_dtype != LINNET_I32 && requant == 0)
        t.expect = "conv_integer_depthwise"; /* also _dot */
#endif
    t.inputs[0] = TENSOR(dtype, LN_LAYOUT_CHANNELS_LAST, 2, groups, height, width);
    t.inputs[1] = TENSOR(w_dtype, LN_LAYOUT_DENSE, channels, 1, kernel, kernel);
    t.inputs[2] = TENSOR(bias_dtype, LN_LAYOUT_DENSE, channels);
    t.constant[1] = t.constant[2] = constant;
    int64_t biases[256]; /* the largest are those of dead channels of quantized networks */
    if (dtype == LINNET_I16 && random_below(3) == 0) {
        for (int c = 0; c < channels; c++)
            biases[c] =
                random_below(3) == 0 ? (int64_t)1 << 52 : (random_below(1000) - 500) * ((int64_t)1 << random_below(42));
        t.given[2] = true, t.values[2] = biases;
    }
    if (random_below(4) == 0) t.inputs[2].dtype = LINNET_NONE;
    if (integer) {
        int zero = dtype == LINNET_I16 ? 0 : dtype == LINNET_U8 ? 131 : -7;
        t.inputs[0].quant = quant_of(1, 0, 0.01, 0.02, zero, zero);
        t.inputs[1].quant = quant_of(random_below(2) ? channels : 1, 0, 0.001, 0.004, w_dtype == LINNET_U8 ? 100 : 0,
                                     w_dtype == LINNET_U8 ? 140 : 0);
        int y_zero = y_dtype == LINNET_U8 ? 120 : y_dtype == LINNET_I8 ? 3 : 0;
        t.outputs[0].quant = quant_of(1, 0, 0.05, 0.1, y_zero, y_zero);
    }
    compare(&t);
    quant_free(t.inputs[0].quant), quant_free(t.inputs[1].quant), quant_free(t.outputs[0].quant);
}

/* A sound: pictures of width 1, with a kernel of width 1. */
static void column(int dtype, int channels, int height) {
    int64_t pads[4] = {random_below(3), 0, random_below(3), 0}, strides[2] = {1 + random_below(2), 1},
            dilations[2] = {1 + random_below(2), 1};
    int kernel = 1 + random_below(5);
    if ((kernel - 1) * dilations[0] + 1 > height + pads[0] + pads[2]) return;
    bool integer = !ln_dtype_is_float(dtype);
    ln_conv_attributes a = {.strides = {strides, 2},
                            .dilations = {dilations, 2},
                            .pads = {pads, 4},
                            .group = channels,
                            .channel_axis = 1,
                            .requant = random_below(3),
                            .output_dtype = dtype};
    test_case t = {.name = "depthwise of width 1",
                   .op = LN_OP_CONV,
                   .attributes = &a,
                   .n_inputs = 3,
                   .n_outputs = 1,
                   .y_layout = LN_LAYOUT_CHANNELS_LAST,
                   .tolerance = 1e-5};
    t.inputs[0] = TENSOR(dtype, LN_LAYOUT_CHANNELS_LAST, 2, channels, height, 1);
    t.inputs[1] = TENSOR(dtype == LINNET_I16 ? LINNET_I16
                         : integer           ? LINNET_I8
                                             : dtype,
                         LN_LAYOUT_DENSE, channels, 1, kernel, 1);
    t.inputs[2] = TENSOR(dtype == LINNET_I16 ? LINNET_I64 : integer ? LINNET_I32 : dtype, LN_LAYOUT_DENSE, channels);
    t.constant[1] = t.constant[2] = random_below(2);
    if (integer) {
        int zero = dtype == LINNET_I16 ? 0 : 5;
        t.inputs[0].quant = quant_of(1, 0, 0.01, 0.02, zero, zero);
        t.inputs[1].quant = quant_of(channels, 0, 0.001, 0.004, 0, 0);
        t.outputs[0].quant = quant_of(1, 0, 0.05, 0.1, zero, zero);
    }
    compare(&t);
    quant_free(t.inputs[0].quant), quant_free(t.inputs[1].quant), quant_free(t.outputs[0].quant);
}

/* Taps in the padding add nothing, even if their weights are not finite. */
static void infinite(const ln_kernel *kernel, int channels, int height, int width, int stride) {
    int64_t strides[2] = {stride, stride}, pads[4] = {1, 1, 1, 1};
    ln_conv_attributes a = {.strides = {strides, 2}, .pads = {pads, 4}, .group = channels, .channel_axis = 1};
    test_case t = {.name = "infinite weights",
                   .op = LN_OP_CONV,
                   .attributes = &a,
                   .n_inputs = 2,
                   .n_outputs = 1,
                   .tolerance = 1e-5};
    t.inputs[0] = TENSOR(LINNET_F32, LN_LAYOUT_CHANNELS_LAST, 2, channels, height, width);
    t.inputs[1] = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, channels, 1, 3, 3);
    t.outputs[0] =
        TENSOR(LINNET_F32, LN_LAYOUT_CHANNELS_LAST, 2, channels, (height - 1) / stride + 1, (width - 1) / stride + 1);
    t.constant[1] = random_below(3) > 0;
    guarded in[2], expected = guarded_new(bytes_of(&t.outputs[0]), false),
                   got = guarded_new(bytes_of(&t.outputs[0]), false);
    for (int i = 0; i < 2; i++) {
        in[i] = guarded_new(bytes_of(&t.inputs[i]), false);
        fill_random(in[i].data, LINNET_F32, ln_count(&t.inputs[i]));
    }
    for (int i = 0; i < channels * 9; i++)
        if (random_below(5) == 0) ((float *)in[1].data)[i] = random_below(3) == 0 ? NAN : INFINITY;
    comparisons++;
    failures += !(run_kernel(reference_of(LN_OP_CONV), &t, NULL, NULL, in, &expected, LN_ISA_SCALAR, 1) &&
                  run_kernel(kernel, &t, NULL, NULL, in, &got, kernel->needs, 2) &&
                  outputs_equal(&t, kernel->name, &expected, &got));
    for (int i = 0; i < 2; i++) guarded_free(&in[i]);
    guarded_free(&expected), guarded_free(&got);
}

/* A fused map must give the bits of the same kernel followed by the map's reference. kind 0: clamp, to f32; 1: residual
 * and a factor, to f32 or f16; 2: dequantized residual, to i8; 3: clamp, to i16. */
static void fused(const ln_kernel *kernel, int dtype, int w_dtype, int kind) {
    int channels = 1 + random_below(40);
    const int64_t stride = kind == 3 ? 1 + random_below(2) : 1, width = kind == 3 ? 3 + random_below(140) : 9;
    const int64_t high = (6 - 1) / stride + 1, wide = (width - 1) / stride + 1;
    int64_t pads[4] = {1, 1, 1, 1}, strides[2] = {stride, stride};
    bool integer = !ln_dtype_is_float(dtype);
    int result = integer ? LINNET_F32 : dtype;
    ln_conv_attributes a = {.pads = {pads, 4},
                            .strides = {strides, 2},
                            .group = channels,
                            .channel_axis = 1,
                            .output_dtype = integer ? LINNET_F32 : LINNET_NONE};
    int64_t clamp[] = {LN_MAP_LOAD, LINNET_F32, 0, 0, 0, LN_MAP_CONST, LINNET_F32, 0, 0, 0,
                       LN_MAP_MAX,  LINNET_F32, 0, 1, 0, LN_MAP_CONST, LINNET_F32, 1, 0, 0,
                       LN_MAP_MIN,  LINNET_F32, 2, 3, 0, LN_MAP_STORE, LINNET_F32, 4, 0, 0};
    int64_t residual[] = {LN_MAP_LOAD, LINNET_F32, 0, 0, 0, LN_MAP_LOAD,  LINNET_F32, 1, 0, 0,
                          LN_MAP_ADD,  LINNET_F32, 0, 1, 0, LN_MAP_CONST, LINNET_F32, 1, 0, 0,
                          LN_MAP_MUL,  LINNET_F32, 2, 3, 0, LN_MAP_STORE, LINNET_F32, 4, 0, 0};
    if (kind == 2) residual[5] = LN_MAP_LOAD_DEQUANTIZED, residual[25] = LN_MAP_STORE_QUANTIZED;
    if (kind == 3) clamp[25] = LN_MAP_STORE_QUANTIZED;
    double floats[] = {kind == 3 ? -50 : -0.25, kind == 3 ? 70 : 0.375};
    int to = kind == 3 ? LINNET_I16 : kind == 2 ? LINNET_I8 : kind == 0 ? LINNET_F32 : result;
    int64_t to_list[] = {to};
    ln_map_attributes map = {
        .program = {kind % 3 == 0 ? clamp : residual, 30}, .floats = {floats, 2}, .dtypes = {to_list, 1}};
    test_case t = {.name = "fused depthwise",
                   .op = LN_OP_CONV,
                   .attributes = &a,
                   .n_inputs = 2,
                   .n_outputs = 1,
                   .n_extra = kind % 3 > 0};
    t.inputs[0] = TENSOR(dtype, LN_LAYOUT_CHANNELS_LAST, 2, channels, 6, width);
    t.inputs[1] = TENSOR(w_dtype, LN_LAYOUT_DENSE, channels, 1, 3, 3);
    t.inputs[2] = TENSOR(kind == 2 ? LINNET_I8 : result, LN_LAYOUT_CHANNELS_LAST, 2, channels, high, wide);
    t.constant[1] = true;
    t.inputs[2].quant = quant_of(1, 0, 0.01, 0.02, 5, 5);
    if (integer) {
        t.inputs[0].quant = quant_of(1, 0, 0.01, 0.02, dtype == LINNET_I16 ? 0 : 9, dtype == LINNET_I16 ? 0 : 9);
        t.inputs[1].quant = quant_of(channels, 0, 0.001, 0.004, 0, 0);
    }
    ln_tensor inner = TENSOR(result, LN_LAYOUT_CHANNELS_LAST, 2, channels, high, wide), y = inner;
    y.dtype = (uint8_t)to;
    y.quant = quant_of(1, 0, 0.02, 0.03, -4, -4);
    guarded in[3], plain = guarded_new(bytes_of(&inner), false), expected = guarded_new(bytes_of(&y), false),
                   got = guarded_new(bytes_of(&y), false);
    for (int i = 0; i < 3; i++) {
        in[i] = guarded_new(bytes_of(&t.inputs[i]), false);
        fill_random(in[i].data, t.inputs[i].dtype, ln_count(&t.inputs[i]));
    }
    test_case alone = t,
              pointwise = {.op = LN_OP_MAP, .attributes = &map, .n_inputs = 1 + (kind % 3 > 0), .n_outputs = 1};
    alone.n_extra = 0, alone.outputs[0] = inner;
    pointwise.inputs[0] = inner, pointwise.inputs[1] = t.inputs[2], pointwise.outputs[0] = y;
    guarded map_in[2] = {plain, in[2]};
    t.outputs[0] = y;
    ln_epilogue epilogue = {.map = &map,
                            .tile_input = 0,
                            .n_inputs = 1 + (kind % 3 > 0),
                            .operand = {0, 0},
                            .low = -INFINITY,
                            .high = INFINITY};
    bool ok = run_kernel(kernel, &alone, NULL, NULL, in, &plain, kernel->needs, 2) &&
              run_kernel(reference_of(LN_OP_MAP), &pointwise, NULL, NULL, map_in, &expected, LN_ISA_SCALAR, 1) &&
              run_kernel(kernel, &t, &epilogue, &inner, in, &got, kernel->needs, 2);
    comparisons++;
    /* The fused map sees the sum before it is rounded to f16, so only the other types have the same bits. */
    t.tolerance = result == LINNET_F16 ? 1e-3 : 0;
    if (!ok || !outputs_equal(&t, kernel->name, &expected, &got)) {
        fprintf(stderr, "FAIL fused %s, %s, kind %d%s\n", kernel->name, linnet_dtype_name(dtype), kind,
                ok ? "" : ": does not run");
        failures++;
    }
    for (int i = 0; i < 3; i++) guarded_free(&in[i]), quant_free(t.inputs[i].quant);
    guarded_free(&plain), guarded_free(&expected), guarded_free(&got), quant_free(y.quant);
}

int main(int argc, char **argv) {
    read_only(&argc, argv);
    const int rounds = argc > 1 ? atoi(argv[1]) : 12; /* with fewer, as under emulation, a part of the lists is drawn */
    static const int channels[] = {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 37, 53};
    static const int floats[] = {LINNET_F32, LINNET_F16, LINNET_BF16};
    static const int integers[] = {LINNET_I8, LINNET_U8, LINNET_I16};
    for (size_t c = 0; c < sizeof channels / sizeof channels[0]; c++)
        for (int kernel = 1; kernel <= 7; kernel += 2)
            for (int stride = 1; stride <= 2; stride++) {
                if (random_below(12) >= 2 * rounds) continue;
                int dilation = 1 + random_below(2), pad = random_below(kernel + 1);
                int height = 7 + random_below(9), width = 7 + random_below(14);
                if ((kernel - 1) * dilation + 1 > 7) dilation = 1;
                for (int d = 0; d < 3; d++)
                    one(floats[d], floats[d], channels[c], height, width, kernel, stride, dilation, pad, 0,
                        random_below(3) > 0);
                for (int d = 0; d < 3; d++) {
                    int mode = random_below(3), to = random_below(3);
                    int y_dtype = to == 0 ? integers[d] : to == 1 ? LINNET_F32 : LINNET_I32;
                    one(integers[d], y_dtype, channels[c], height, width, kernel, stride, dilation, pad, mode,
                        random_below(3) > 0);
                    one(integers[d], integers[d], channels[c], height, width, kernel, stride, dilation, pad, 0, true);
                }
            }
    /* Channels around the blocks of 64, rows longer than their segments, one row and depth, biases beyond 32 bits. */
    static const int many[] = {47, 48, 63, 64, 65, 80, 113, 127, 128, 129, 193};
    for (size_t i = 0; i < sizeof many / sizeof many[0]; i++)
        for (int d = 0; d < 3; d++) {
            if (random_below(12) >= 2 * rounds) continue;
            const int kernel = 3 + 2 * random_below(2), to = random_below(2) ? LINNET_F32 : integers[d];
            one(integers[d], to, many[i], 1 + random_below(7), 5 + random_below(100), kernel, 1 + random_below(2), 1,
                kernel / 2, random_below(3), random_below(3) > 0);
        }
    /* Rows around the blocks and segments of the kernels for 3 x 3 and 5 x 5, with every kind of padding and output. */
    static const int widths[] = {5, 6, 7, 8, 9, 11, 55, 56, 57, 58, 59, 64, 65, 66, 113, 129, 131};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        for (int kernel = 3; kernel <= 5; kernel += 2)
            for (int stride = 1; stride <= 3; stride++)
                for (int pad = 0; pad <= kernel / 2 + 1; pad++) {
                    if (random_below(12) >= 2 * rounds) continue;
                    int x = integers[random_below(2)], y = integers[random_below(2)], mode = random_below(3);
                    one(x, y, channels[random_below(13)], 6, widths[i], kernel, stride, 1, pad, mode, true);
                    one(LINNET_F32, LINNET_F32, channels[random_below(13)], 6, widths[i], kernel, stride, 1, pad, 0,
                        random_below(3) > 0);
                }
    static const int wide[] = {8, 9, 11, 22}; /* with 484 taps, sums of i16 by i8 nearly fill 32 bits */
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++)
        for (int d = 0; d < 3; d++)
            one(integers[d], random_below(2) ? LINNET_F32 : integers[d], channels[1 + random_below(12)], 22, 25,
                wide[i], 1, 1, 4, random_below(3), true);
    for (int i = 0; i < 12; i++) { /* width 1 */
        column(LINNET_F32, channels[random_below(13)], 1 + random_below(20));
        column(integers[random_below(3)], channels[random_below(13)], 1 + random_below(20));
    }
    for (const ln_kernel *k = ln_kernels; k->code != NULL; k++)
        for (int kind = 0; kind < 3 && can_run(k); kind++) {
            for (int i = 0; i < 12 && strncmp(k->name, "conv_float_depthwise", 20) == 0; i++)
                infinite(k, channels[random_below(13)], 1 + random_below(5), 4 + random_below(5), 1 + i % 2);
            if (strncmp(k->name, "conv_float_depthwise", 20) == 0)
                fused(k, LINNET_F32, LINNET_F32, kind), fused(k, LINNET_F16, LINNET_F16, 1);
            if (strncmp(k->name, "conv_integer_depthwise__", 24) == 0)
                fused(k, LINNET_I8, LINNET_I8, kind), fused(k, LINNET_I16, LINNET_I8, kind),
                    fused(k, LINNET_I16, LINNET_I16, kind);
            for (int i = 0; i < 20 && kind == 0 && strncmp(k->name, "conv_integer_depthwise__", 24) == 0; i++)
                fused(k, LINNET_I16, i % 4 == 0 ? LINNET_I16 : LINNET_I8, 3);
            if (strcmp(k->name, "conv_integer_depthwise_dot__avx512vnni") == 0)
                fused(k, LINNET_I8, LINNET_I8, kind), fused(k, LINNET_U8, LINNET_I8, kind);
        }
    return report("depthwise");
}
