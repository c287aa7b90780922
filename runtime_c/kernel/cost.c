/* cost.c - the model of time by which kernels are chosen: bytes moved and multiplications, at a rate that depends on
 * the width of the vectors. It never reads a clock, so the same call gets the same kernel in every run. */
#include "kernel/kernel.h"

#include <string.h>

double ln_modelled_ns(double bytes, double products, int threads) {
    enum {
        STEP = 300,
        BYTES = 8,
        PRODUCTS = 16
    }; /* nanoseconds of any step; bytes per nanosecond; multiplications per nanosecond and thread */
    return STEP + bytes / BYTES + products / PRODUCTS / threads;
}

double ln_modelled_products(double sizes) {
    /* The square root by Newton's method, starting from half the exponent, so that libm is not needed. */
    uint64_t bits;
    memcpy(&bits, &sizes, sizeof bits);
    bits = (bits >> 1) + (UINT64_C(1023) << 51);
    double root;
    memcpy(&root, &bits, sizeof root);
    for (int i = 0; i < 3; ++i) root = (root + sizes / root) / 2;
    return root;
}

int ln_slowness(const ln_kernel *kernel) {
    if (kernel->flags & LN_KERNEL_REFERENCE) return 64;
#if defined(__x86_64__) || defined(_M_X64)
    return kernel->needs & LN_AVX512 ? 1 : kernel->needs & (LN_AVX2 | LN_AVXVNNI) ? 2 : 4;
#elif defined(__aarch64__) || defined(__ARM_NEON)
    return kernel->needs & (LN_SVE | LN_I8MM) ? 1 : kernel->needs & (LN_DOTPROD | LN_FP16 | LN_BF16) ? 2 : 4;
#else
    return 4;
#endif
}

double ln_full_rate_ns(const ln_call *call) {
    double bytes = 0, sizes = 1;
    for (int i = 0; i < call->n_inputs + call->n_outputs; ++i) {
        const bool input = i < call->n_inputs;
        const ln_tensor *t = input ? &call->inputs[i] : &call->outputs[i - call->n_inputs];
        const int64_t count = t->dtype == LINNET_NONE ? 0 : ln_count(t);
        if (count <= 0) continue;
        bytes += (double)ln_bytes_of(t->dtype, count);
        if (i < 2 || i == call->n_inputs) sizes *= (double)count;
    }
    return ln_modelled_ns(bytes, call->op->flags & LN_OP_EPILOGUE ? ln_modelled_products(sizes) : 0, call->threads);
}

double ln_least_cost(const ln_kernel *kernel, const ln_call *call) {
    return ln_slowness(kernel) * ln_full_rate_ns(call);
}

double ln_kernel_cost(const ln_kernel *kernel, const ln_call *call) {
    const double least = ln_least_cost(kernel, call);
    return kernel->code->cost != NULL ? kernel->code->cost(kernel, call, least) : least;
}

double ln_lines_cost(const ln_kernel *kernel, int64_t n, double least) {
#if defined(__x86_64__) || defined(_M_X64)
    const int64_t lanes = kernel->needs & LN_AVX512 ? 16 : kernel->needs & LN_AVX2 ? 8 : 4;
#else
    const int64_t lanes = 4;
    (void)kernel;
#endif
    if (n <= 0 || n % lanes == 0) return least;
    /* A short vector of AVX-512 was measured to take as long as two to five whole ones: its elements are moved one by
     * one. A short vector of the others takes about as long as a whole one. */
    const double vectors = (double)(n / lanes) + (lanes == 16 ? 3.5 : 1);
    return least * vectors * (double)lanes / (double)n;
}
