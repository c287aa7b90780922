/* test_depthwise.c - depthwise convolution: every ISA against the reference, floats within rounding, integers exactly.
 * Channel counts around the vector widths, all paddings, strides and dilations, 1-D to 3-D. */
#include "compare.h"

static void one(int dtype, int y_dtype, int channels, int height, int width, int kernel, int stride, int dilation, int pad,
                int requant, bool constant) {
    char name[160];
    snprintf(name, sizeof name, "depthwise %s to %s c%d %dx%d k%d s%d d%d p%d mode %d%s", linnet_dtype_name(dtype),
             linnet_dtype_name(y_dtype), channels, height, width, kernel, stride, dilation, pad, requant,
             constant ? "" : " variable");
    int64_t strides[2] = {stride, stride}, dilations[2] = {dilation, dilation}, pads[4] = {pad, pad, pad, pad / 2};
    ln_conv_attributes a = {.strides = {strides, 2}, .dilations = {dilations, 2}, .pads = {pads, 4}, .group = channels,
                            .channel_axis = 1, .requant = requant, .output_dtype = y_dtype};
    bool integer = !ln_dtype_is_float(dtype);
    int w_dtype = integer ? (random_below(4) == 0 ? LINNET_U8 : LINNET_I8) : dtype;
    int bias_dtype = dtype == LINNET_I16 ? LINNET_I64 : integer ? LINNET_I32 : dtype;
    test_case t = {.name = name, .op = LN_OP_CONV, .attributes = &a, .n_inputs = 3, .n_outputs = 1,
                   .y_layout = LN_LAYOUT_CHANNELS_LAST, .tolerance = 1e-5,
                   .expect = integer ? "conv_integer_depthwise" : "conv_float_depthwise"};
    t.inputs[0] = TENSOR(dtype, LN_LAYOUT_CHANNELS_LAST, 2, channels, height, width);
    t.inputs[1] = TENSOR(w_dtype, LN_LAYOUT_DENSE, channels, 1, kernel, kernel);
    t.inputs[2] = TENSOR(bias_dtype, LN_LAYOUT_DENSE, channels);
    t.constant[1] = t.constant[2] = constant;
    if (random_below(4) == 0)
        t.inputs[2].dtype = LINNET_NONE;
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

int main(void) {
    static const int channels[] = {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 37, 53};
    static const int floats[] = {LINNET_F32, LINNET_F16, LINNET_BF16};
    static const int integers[] = {LINNET_I8, LINNET_U8, LINNET_I16};
    for (size_t c = 0; c < sizeof channels / sizeof channels[0]; c++)
        for (int kernel = 1; kernel <= 7; kernel += 2)
            for (int stride = 1; stride <= 2; stride++) {
                int dilation = 1 + random_below(2), pad = random_below(kernel + 1);
                int height = 7 + random_below(9), width = 7 + random_below(14);
                if ((kernel - 1) * dilation + 1 > 7)
                    dilation = 1;
                for (int d = 0; d < 3; d++)
                    one(floats[d], floats[d], channels[c], height, width, kernel, stride, dilation, pad, 0, random_below(3) > 0);
                for (int d = 0; d < 3; d++) {
                    int mode = random_below(3), to = random_below(3);
                    int y_dtype = to == 0 ? integers[d] : to == 1 ? LINNET_F32 : LINNET_I32;
                    one(integers[d], y_dtype, channels[c], height, width, kernel, stride, dilation, pad, mode,
                        random_below(3) > 0);
                    one(integers[d], integers[d], channels[c], height, width, kernel, stride, dilation, pad, 0, true);
                }
            }
    return report("depthwise");
}
