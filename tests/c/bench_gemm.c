/* bench_gemm.c - measures GFLOP/s of every matmul and conv kernel on one core, over the layers of known networks.
 * Usage: bench_gemm [part of a kernel's name]. Reports the best of several runs; weights are packed beforehand. */
#include "gemm_call.h"

typedef struct layer {
    const char *name;
    int64_t size, in, out, kernel, stride, times;
} layer;

/* Each row has input size, channels, kernel, stride, and the number of layers of this kind. MobileNetV2 (Sandler et al.
 * 2018), ResNet-50 (He et al. 2016). */
static const layer layers[] = {
    {"mobilenet_v2 first", 224, 3, 32, 3, 2, 1}, {"mobilenet_v2", 112, 32, 16, 1, 1, 1},
    {"mobilenet_v2", 112, 16, 96, 1, 1, 1},      {"mobilenet_v2", 56, 96, 24, 1, 1, 1},
    {"mobilenet_v2", 56, 24, 144, 1, 1, 2},      {"mobilenet_v2", 56, 144, 24, 1, 1, 1},
    {"mobilenet_v2", 28, 144, 32, 1, 1, 1},      {"mobilenet_v2", 28, 32, 192, 1, 1, 3},
    {"mobilenet_v2", 28, 192, 32, 1, 1, 2},      {"mobilenet_v2", 14, 192, 64, 1, 1, 1},
    {"mobilenet_v2", 14, 64, 384, 1, 1, 4},      {"mobilenet_v2", 14, 384, 64, 1, 1, 3},
    {"mobilenet_v2", 14, 384, 96, 1, 1, 1},      {"mobilenet_v2", 14, 96, 576, 1, 1, 3},
    {"mobilenet_v2", 14, 576, 96, 1, 1, 2},      {"mobilenet_v2", 7, 576, 160, 1, 1, 1},
    {"mobilenet_v2", 7, 160, 960, 1, 1, 3},      {"mobilenet_v2", 7, 960, 160, 1, 1, 2},
    {"mobilenet_v2", 7, 960, 320, 1, 1, 1},      {"mobilenet_v2", 7, 320, 1280, 1, 1, 1},
    {"resnet50 first", 224, 3, 64, 7, 2, 1},     {"resnet50", 56, 64, 64, 3, 1, 3},
    {"resnet50", 28, 128, 128, 3, 1, 3},         {"resnet50", 14, 256, 256, 3, 1, 5},
    {"resnet50", 7, 512, 512, 3, 1, 2},          {"resnet50", 56, 64, 256, 1, 1, 3},
    {"resnet50", 14, 1024, 256, 1, 1, 5},        {"resnet50", 14, 512, 1024, 1, 2, 1},
    {"vector x matrix", 1, 1280, 1000, 1, 1, 1}, {"square 512", 16, 512, 512, 1, 1, 1},
    {"square 1024", 32, 1024, 1024, 1, 1, 1},
};

static bool bench(const ln_kernel *kernel, const layer *l, int dtype, double *seconds, double *flops) {
    gemm_call *g = calloc(1, sizeof *g);
    bool integer = dtype != LINNET_F32;
    int64_t x[4] = {1, l->in, l->size, l->size}, w[4] = {l->out, l->in, l->kernel, l->kernel};
    int64_t stride[2] = {l->stride, l->stride}, dilation[2] = {1, 1}, pad[2] = {l->kernel / 2, l->kernel / 2};
    int bias = dtype == LINNET_I16 ? LINNET_I64 : integer ? LINNET_I32 : LINNET_F32;
    int dtypes[4] = {dtype, integer ? LINNET_I8 : LINNET_F32, bias, dtype};
    gemm_make_conv(g, dtypes, 2, x, w, stride, dilation, pad, 1, true);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 256; j++) g->scales[i][j] = i == 2 ? 1 : 0.01f;
    if (integer) {
        gemm_quantize(g, 0, &g->in[0], 1, 0);
        gemm_quantize(g, 1, &g->in[1], 1, 0);
        gemm_quantize(g, 2, &g->out, 1, 0);
    }
    gemm_allocate(g);
    g->in[1].data = g->memory[1].data, g->in[2].data = g->memory[2].data;
    double guess = 2.0 * (double)(span(&g->out) * l->in * l->kernel * l->kernel);
    int repeats = (int)(1e9 / guess) + 3;
    bool done = gemm_run(g, kernel, 1, repeats > 200 ? 200 : repeats, seconds);
    *flops = guess;
    gemm_free(g);
    free(g);
    return done;
}

int main(int argc, char **argv) {
    static const int dtypes[] = {LINNET_F32, LINNET_I8, LINNET_U8, LINNET_I16};
    for (int k = 0; ln_kernels[k].code != NULL; k++) {
        const ln_kernel *kernel = &ln_kernels[k];
        if (kernel->op != LN_OP_CONV || (kernel->flags & LN_KERNEL_REFERENCE) || !can_run(kernel) ||
            (argc > 1 && strstr(kernel->name, argv[1]) == NULL))
            continue;
        for (int d = 0; d < 4; d++) {
            double total[3] = {0, 0, 0}, work[3] = {0, 0, 0};
            for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
                const layer *l = &layers[i];
                double seconds = 0, flops = 0;
                if (!bench(kernel, l, dtypes[d], &seconds, &flops)) break;
                int net = l->name[0] == 'm' ? 0 : l->name[0] == 'r' ? 1 : 2;
                total[net] += seconds * (double)l->times, work[net] += flops * (double)l->times;
                printf("%s %s %s %lldx%lld %lld>%lld k%lld s%lld: %.3f ms, %.1f G/s\n", kernel->name,
                       linnet_dtype_name(dtypes[d]), l->name, (long long)l->size, (long long)l->size, (long long)l->in,
                       (long long)l->out, (long long)l->kernel, (long long)l->stride, seconds * 1e3,
                       flops / seconds * 1e-9);
            }
            if (total[0] > 0)
                printf("%s %s: mobilenet_v2 without depthwise %.2f ms (%.1f G/s), resnet50 sample %.2f ms (%.1f G/s)\n",
                       kernel->name, linnet_dtype_name(dtypes[d]), total[0] * 1e3, work[0] / total[0] * 1e-9,
                       total[1] * 1e3, work[1] / total[1] * 1e-9);
        }
    }
    return 0;
}
