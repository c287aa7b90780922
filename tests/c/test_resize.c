/* test_resize.c - resize: every ISA against the reference bit by bit, and the reference against values of the ONNX
 * specification (the examples of its Resize operator, computed by ONNX's reference implementation). */
#include "compare.h"
#include "base/layout.h"
#include "dispatch/dispatch.h"

static void one(int dtype, int mode, int layout, int channels, bool by_scale) {
    static const int coordinates[] = {0, 1, 2, 3, 4};
    int64_t in_h = 1 + random_below(9), in_w = 1 + random_below(9), axes[2] = {2, 3};
    int64_t sizes[2] = {1 + random_below(20), 1 + random_below(20)};
    if (random_below(5) == 0) sizes[1] = in_w;
    double scales[2] = {0.3 + (random_unit() + 1) * 1.5, random_below(4) == 0 ? 1 : 0.3 + (random_unit() + 1) * 1.5};
    for (int i = 0; i < 2; i++)
        if ((i == 0 ? in_h : in_w) * scales[i] < 1) scales[i] = 1.5;
    ln_resize_attributes a = {.mode = mode,
                              .coordinates = coordinates[random_below(5)],
                              .nearest = random_below(4),
                              .cubic_coefficient = -0.75,
                              .exclude_outside = random_below(2),
                              .antialias = random_below(3) == 0,
                              .axes = {axes, 2}};
    if (by_scale)
        a.scales = (ln_floats){scales, 2};
    else
        a.sizes = (ln_ints){sizes, 2};
    char name[200];
    snprintf(name, sizeof name, "resize %s mode %d coordinates %d layout %d c%d %lldx%lld by %s",
             linnet_dtype_name(dtype), mode, (int)a.coordinates, layout, channels, (long long)in_h, (long long)in_w,
             by_scale ? "scale" : "size");
    test_case t = {
        .name = name, .op = LN_OP_RESIZE, .attributes = &a, .n_inputs = 1, .n_outputs = 1, .y_layout = layout};
    t.inputs[0] = TENSOR(dtype, layout, 2, channels, in_h, in_w);
    bool same = by_scale ? (float)scales[1] == 1 : sizes[1] == in_w;
    if (!same && channels > 1 && in_w > 1)
        t.expect = "resize_rows";
    else if (layout == LN_LAYOUT_CHANNELS_LAST && channels > 1)
        t.expect = "resize_"; /* either of the resize kernels */
    compare(&t);
}

/* Runs the reference on a plane of f32. */
static void plane(const char *name, const ln_resize_attributes *a, int64_t h, int64_t w, const float *x, int64_t n,
                  const float *expected) {
    ln_tensor input = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, 1, 1, h, w), output = {0};
    ln_infer infer = {.op = &ln_ops[LN_OP_RESIZE],
                      .attributes = a,
                      .n_inputs = 1,
                      .n_outputs = 1,
                      .inputs = &input,
                      .outputs = &output};
    float y[64] = {0};
    ln_memory memory;
    ln_pool pool;
    ln_memory_init(&memory, NULL);
    ln_pool_init(&pool, &memory);
    comparisons++;
    bool ok = ln_infer_resize(&infer) == LINNET_OK && ln_count(&output) == n;
    if (ok) {
        ln_set_layout(&output, LN_LAYOUT_DENSE);
        ln_call call = {.op = infer.op,
                        .attributes = a,
                        .n_inputs = 1,
                        .n_outputs = 1,
                        .inputs = &input,
                        .outputs = &output,
                        .inner = &output,
                        .phases = 1,
                        .work = {1, 1},
                        .plan = &pool};
        const ln_kernel *kernel = ln_choose_kernel(&call, true, NULL);
        const void *in[1] = {x};
        void *out[1] = {y};
        ln_buffers b = {.inputs = in, .outputs = out};
        ok = kernel != NULL && kernel->code->configure(&call) == LINNET_OK &&
             kernel->code->run(&call, &b, 0, 0, call.work[0], 0) == LINNET_OK;
        for (int64_t i = 0; i < n && ok; i++) {
            ok = fabsf(y[i] - expected[i]) <= 1e-5f * (1 + fabsf(expected[i]));
            if (!ok)
                fprintf(stderr, "%s: element %lld: expected %.7g, got %.7g\n", name, (long long)i, (double)expected[i],
                        (double)y[i]);
        }
    }
    if (!ok) {
        fprintf(stderr, "FAIL %s\n", name);
        failures++;
    }
    ln_pool_free(&pool);
}

static void specification_examples(void) {
    static const float x8[] = {1, 2, 3, 4, 5, 6, 7, 8}, x4[] = {1, 2, 3, 4};
    static const float x16[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    double down[] = {1, 1, 0.6, 0.6}, up[] = {1, 1, 2, 2}, down8[] = {1, 1, 0.8, 0.8};
    ln_resize_attributes a = {.mode = LN_RESIZE_MODE_LINEAR, .scales = {down, 4}, .cubic_coefficient = -0.75};
    plane("downsample_scales_linear", &a, 2, 4, x8, 2, (const float[]){2.6666665f, 4.3333331f});
    a.coordinates = LN_RESIZE_COORDINATES_ALIGN_CORNERS;
    plane("downsample_scales_linear_align_corners", &a, 2, 4, x8, 2, (const float[]){1, 3.142857f});
    a.mode = LN_RESIZE_MODE_NEAREST, a.coordinates = LN_RESIZE_COORDINATES_HALF_PIXEL;
    plane("downsample_scales_nearest", &a, 2, 4, x8, 2, (const float[]){1, 3});
    a.mode = LN_RESIZE_MODE_CUBIC, a.scales.v = down8;
    plane("downsample_scales_cubic", &a, 4, 4, x16, 9,
          (const float[]){1.47119141f, 2.78125f, 4.08251953f, 6.71142578f, 8.02148438f, 9.32275391f, 11.91650391f,
                          13.2265625f, 14.52783203f});
    a.exclude_outside = 1, a.cubic_coefficient = -0.5;
    plane("downsample_scales_cubic_A_n0p5_exclude_outside", &a, 4, 4, x16, 9,
          (const float[]){1.36812675f, 2.6695014f, 4.0133367f, 6.57362535f, 7.875f, 9.2188353f, 11.94896657f,
                          13.25034122f, 14.59417652f});
    a = (ln_resize_attributes){.mode = LN_RESIZE_MODE_LINEAR, .scales = {up, 4}};
    plane("upsample_scales_linear", &a, 2, 2, x4, 16,
          (const float[]){1, 1.25f, 1.75f, 2, 1.5f, 1.75f, 2.25f, 2.5f, 2.5f, 2.75f, 3.25f, 3.5f, 3, 3.25f, 3.75f, 4});
    a = (ln_resize_attributes){.mode = LN_RESIZE_MODE_LINEAR, .scales = {down, 4}, .antialias = 1};
    plane("downsample_scales_linear_antialias", &a, 4, 4, x16, 4, (const float[]){2.875f, 4.5f, 9.375f, 11});
    int64_t sizes[] = {7, 8}, axes[] = {2, 3};
    a = (ln_resize_attributes){.sizes = {sizes, 2}, .axes = {axes, 2}, .aspect = LN_RESIZE_ASPECT_NOT_LARGER};
    float expected[49];
    for (int i = 0; i < 49; i++) expected[i] = (float)((i / 7 > 3) * 2 + (i % 7 > 3) + 1);
    plane("upsample_sizes_nearest_not_larger", &a, 2, 2, x4, 49, expected);
}

int main(int argc, char **argv) {
    read_only(&argc, argv);
    static const int dtypes[] = {LINNET_F32, LINNET_F16, LINNET_BF16, LINNET_I8, LINNET_U8, LINNET_I16};
    for (int d = 0; d < 6; d++)
        for (int mode = 0; mode < 3; mode++)
            for (int i = 0; i < 24; i++) one(dtypes[d], mode, i % 2, 1 + random_below(40), i / 2 % 2);
    specification_examples();
    return report("resize");
}
