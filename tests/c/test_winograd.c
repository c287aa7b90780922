/* test_winograd.c - 3 x 3 convolutions with stride 1 of every kernel against the reference: sizes around the tiles of 4
 * and 6 outputs, padding of all kinds, groups, channels around the widths of vectors and panels, transposed
 * convolutions, weights that are not constant, threads, and fused maps. */
#include "compare.h"

#include <math.h>

static void one(int height, int width, int in, int out, bool last) {
    static const int64_t ones[] = {1, 1};
    const bool turned = random_below(2), fixed = random_below(2);
    const int group = random_below(3) ? 1 : 2;
    const int64_t pads[] = {random_below(3), random_below(3), random_below(3), random_below(3)};
    const int auto_pad = random_below(3) ? 0 : random_below(4), axis = last ? 3 : 1;
    const ln_conv_attributes conv = {.strides = {ones, 2},
                                     .dilations = {ones, 2},
                                     .pads = {pads, 4},
                                     .group = group,
                                     .auto_pad = auto_pad,
                                     .channel_axis = axis};
    const ln_conv_transpose_attributes transpose = {.strides = {ones, 2},
                                                    .dilations = {ones, 2},
                                                    .pads = {pads, 4},
                                                    .group = group,
                                                    .auto_pad = auto_pad,
                                                    .channel_axis = axis};
    char name[160];
    snprintf(name, sizeof name, "%s3 x 3 over %d x %d, %d x %d -> %d, pads %d %d %d %d, auto_pad %d, %s weights",
             turned ? "transposed " : "", height, width, group, in, out, (int)pads[0], (int)pads[1], (int)pads[2],
             (int)pads[3], auto_pad, fixed ? "constant" : "given");
    test_case t = {.name = name,
                   .op = turned ? LN_OP_CONV_TRANSPOSE : LN_OP_CONV,
                   .n_inputs = 3,
                   .n_outputs = 1,
                   .attributes = turned ? (const void *)&transpose : &conv,
                   .y_layout = last ? LN_LAYOUT_DENSE : LN_LAYOUT_CHANNELS_LAST,
                   .tolerance = 1e-4};
    t.inputs[0] = last ? TENSOR(LINNET_F32, LN_LAYOUT_DENSE, 2, height, width, group * in)
                       : TENSOR(LINNET_F32, LN_LAYOUT_CHANNELS_LAST, 2, group * in, height, width);
    t.inputs[1] = turned ? TENSOR(LINNET_F32, LN_LAYOUT_DENSE, group * in, out, 3, 3)
                         : TENSOR(LINNET_F32, LN_LAYOUT_DENSE, group * out, in, 3, 3);
    t.inputs[2] = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, group * out);
    if (random_below(3) == 0) t.inputs[2].dtype = LINNET_NONE;
    t.constant[1] = fixed, t.constant[2] = fixed && random_below(4) > 0;
    compare(&t);
}

static void gradient(int height, int width, int in, int out) {
    static const int64_t ones[] = {1, 1}, kernel[] = {3, 3};
    const int group = random_below(3) ? 1 : 2, batch = 1 + random_below(4);
    const int64_t pads[] = {random_below(3), random_below(3), random_below(3), random_below(3)};
    const ln_conv_gradient_attributes a = {.kernel = {kernel, 2},
                                           .strides = {ones, 2},
                                           .dilations = {ones, 2},
                                           .pads = {pads, 4},
                                           .group = group,
                                           .channel_axis = 1};
    char name[160];
    snprintf(name, sizeof name, "gradient of 3 x 3 over %d of %d x %d, %d x %d -> %d, pads %d %d %d %d", batch, height,
             width, group, in, out, (int)pads[0], (int)pads[1], (int)pads[2], (int)pads[3]);
    test_case t = {
        .name = name, .op = LN_OP_CONV_GRADIENT, .n_inputs = 2, .n_outputs = 1, .attributes = &a, .tolerance = 1e-4};
    t.inputs[0] = TENSOR(LINNET_F32, LN_LAYOUT_CHANNELS_LAST, batch, group * in, height, width);
    t.inputs[1] = TENSOR(LINNET_F32, LN_LAYOUT_CHANNELS_LAST, batch, group * out, height + pads[0] + pads[2] - 2,
                         width + pads[1] + pads[3] - 2);
    compare(&t);
}

/* A fused map must give the bits of the same kernel followed by the map's reference. kind 0: clamp; 1: residual and a
 * factor; 2: residual and clamp. */
static void fused(const ln_kernel *kernel, int height, int width, int in, int out, int kind) {
    static const int64_t pads[] = {1, 1, 1, 1}, to[] = {LINNET_F32};
    static const int64_t clamp[] = {LN_MAP_LOAD, LINNET_F32, 0, 0, 0, LN_MAP_CONST, LINNET_F32, 0, 0, 0,
                                    LN_MAP_MAX,  LINNET_F32, 0, 1, 0, LN_MAP_CONST, LINNET_F32, 1, 0, 0,
                                    LN_MAP_MIN,  LINNET_F32, 2, 3, 0, LN_MAP_STORE, LINNET_F32, 4, 0, 0};
    static const int64_t residual[] = {LN_MAP_LOAD, LINNET_F32, 0, 0, 0, LN_MAP_LOAD,  LINNET_F32, 1, 0, 0,
                                       LN_MAP_ADD,  LINNET_F32, 0, 1, 0, LN_MAP_CONST, LINNET_F32, 1, 0, 0,
                                       LN_MAP_MUL,  LINNET_F32, 2, 3, 0, LN_MAP_STORE, LINNET_F32, 4, 0, 0};
    static const int64_t both[] = {LN_MAP_LOAD, LINNET_F32, 0, 0, 0, LN_MAP_LOAD,  LINNET_F32, 1, 0, 0,
                                   LN_MAP_ADD,  LINNET_F32, 0, 1, 0, LN_MAP_CONST, LINNET_F32, 0, 0, 0,
                                   LN_MAP_MAX,  LINNET_F32, 2, 3, 0, LN_MAP_CONST, LINNET_F32, 1, 0, 0,
                                   LN_MAP_MIN,  LINNET_F32, 4, 5, 0, LN_MAP_STORE, LINNET_F32, 6, 0, 0};
    static const double floats[] = {-0.25, 0.375};
    const ln_conv_attributes a = {.pads = {pads, 4}, .group = 1, .channel_axis = 1};
    const ln_map_attributes map = {.program = {kind == 0   ? clamp
                                               : kind == 1 ? residual
                                                           : both,
                                               kind == 2 ? 40 : 30},
                                   .floats = {floats, 2},
                                   .dtypes = {to, 1}};
    test_case t = {
        .name = "fused", .op = LN_OP_CONV, .attributes = &a, .n_inputs = 2, .n_outputs = 1, .n_extra = kind > 0};
    t.inputs[0] = TENSOR(LINNET_F32, LN_LAYOUT_CHANNELS_LAST, 2, in, height, width);
    t.inputs[1] = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, out, in, 3, 3);
    t.inputs[2] = TENSOR(LINNET_F32, LN_LAYOUT_CHANNELS_LAST, 2, out, height, width);
    t.constant[1] = true;
    const ln_tensor y = t.inputs[2];
    guarded got[3], in_data[3];
    for (int i = 0; i < 3; i++) {
        got[i] = guarded_new(bytes_of(&y), false), in_data[i] = guarded_new(bytes_of(&t.inputs[i]), false);
        fill_random(in_data[i].data, LINNET_F32, ln_count(&t.inputs[i]));
    }
    test_case alone = t, pointwise = {.op = LN_OP_MAP, .attributes = &map, .n_inputs = 1 + (kind > 0), .n_outputs = 1};
    alone.n_extra = 0, alone.outputs[0] = t.outputs[0] = y;
    pointwise.inputs[0] = pointwise.inputs[1] = pointwise.outputs[0] = y;
    guarded map_in[2] = {got[0], in_data[2]};
    const ln_epilogue epilogue = {.map = &map,
                                  .tile_input = 0,
                                  .n_inputs = 1 + (kind > 0),
                                  .operand = {0, 0},
                                  .low = -INFINITY,
                                  .high = INFINITY};
    const bool ok = run_kernel(kernel, &alone, NULL, NULL, in_data, &got[0], kernel->needs, 3) &&
                    run_kernel(reference_of(LN_OP_MAP), &pointwise, NULL, NULL, map_in, &got[1], LN_ISA_SCALAR, 1) &&
                    run_kernel(kernel, &t, &epilogue, &y, in_data, &got[2], kernel->needs, 2);
    comparisons++;
    if (!ok || !outputs_equal(&t, kernel->name, &got[1], &got[2])) {
        fprintf(stderr, "FAIL fused %s, kind %d%s\n", kernel->name, kind, ok ? "" : ": does not run");
        failures++;
    }
    for (int i = 0; i < 3; i++) guarded_free(&got[i]), guarded_free(&in_data[i]);
}

static const int sides[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 17, 23};
static const int channels[] = {16, 17, 19, 24, 31, 32, 37, 47, 48, 49, 64, 97, 101, 130, 139};
enum {
    SIDES = sizeof sides / sizeof *sides,
    CHANNELS = sizeof channels / sizeof *channels,
    FEW_SIDES = 7,
    FEW_CHANNELS = 4
};

/* Draws a size. The reference takes nearly all of the time, so images of all sizes have few channels, and all numbers
 * of channels have small images: every tile with every remainder, not every product of both. */
static void draw(int *height, int *width, int *in, int *out) {
    const bool large = random_below(2);
    *height = sides[random_below(large ? SIDES : FEW_SIDES)] + 2;
    *width = sides[random_below(large ? SIDES : FEW_SIDES)] + 2;
    *in = channels[random_below(large ? FEW_CHANNELS : CHANNELS)];
    *out = channels[random_below(large ? FEW_CHANNELS : CHANNELS)];
}

int main(int argc, char **argv) {
    read_only(&argc, argv);
    const int rounds = argc > 1 ? atoi(argv[1]) : 12;
    int height, width, in, out;
    for (int i = 0; i < 10 * rounds; i++) {
        draw(&height, &width, &in, &out);
        one(height, width, in, out, random_below(2));
    }
    for (int i = 0; i < 5 * rounds; i++) {
        draw(&height, &width, &in, &out);
        gradient(height, width, in, out);
    }
    for (int i = 0; i < rounds; i++) one(3 + random_below(4), 3 + random_below(4), 16, 130 + random_below(14), true);
    if (rounds > 3) gradient(9, 8, 150, 267);
    for (int k = 0; ln_kernels[k].code != NULL; k++) {
        const ln_kernel *kernel = &ln_kernels[k];
        const bool named = kernel->op == LN_OP_CONV && strstr(kernel->name, "_f32_") != NULL;
        for (int i = 0; i < 18 && named && can_run(kernel); i++) {
            draw(&height, &width, &in, &out);
            fused(kernel, height, width, in, out, i % 3);
        }
    }
    return report("winograd");
}
