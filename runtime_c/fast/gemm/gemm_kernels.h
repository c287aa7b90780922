/* gemm_kernels.h - macros by which a file of sets (kernels_*) defines its kernels: matmul, conv, conv_transpose, and
 * the backward pass of a convolution. */
#ifndef LN_FAST_GEMM_GEMM_KERNELS_H
#define LN_FAST_GEMM_GEMM_KERNELS_H

#include "fast/gemm/gemm_driver.h"
#include "fast/gemm/gemm_driver_conv.h"
#include "fast/gemm/gemm_driver_gradient.h"
#include "fast/gemm/gemm_driver_matmul.h"
#include "fast/gemm/gemm_driver_scatter.h"
#include "kernel/cost.h"

/* Defines the kernels ln_matmul_NAME and ln_conv_NAME over SETS, an array of pointers to sets. ln_conv_NAME also runs
 * conv_transpose. CONDITION is an expression in `call`; the kernels refuse calls for which it is false. The costs are
 * functions. */
#define LN_GEMM_KERNELS(NAME, SETS) LN_GEMM_KERNELS_IF(true, NAME, SETS)
#define LN_GEMM_KERNELS_IF(CONDITION, NAME, SETS)                                                                      \
    LN_GEMM_KERNELS_OF(CONDITION, ln_gemm_matmul_cost, ln_gemm_conv_cost, NAME, SETS)
#define LN_GEMM_KERNELS_OF(CONDITION, MATMUL_COST, CONV_COST, NAME, SETS)                                              \
    static bool matmul_can_##NAME(const ln_call *call) {                                                               \
        return ln_gemm_matmul_can(call, SETS, (int)(sizeof SETS / sizeof SETS[0])) && (CONDITION);                     \
    }                                                                                                                  \
    static linnet_status matmul_configure_##NAME(ln_call *call) {                                                      \
        return ln_gemm_matmul_configure(call, SETS, (int)(sizeof SETS / sizeof SETS[0]));                              \
    }                                                                                                                  \
    static bool conv_can_##NAME(const ln_call *call) {                                                                 \
        return ln_gemm_conv_can(call, SETS, (int)(sizeof SETS / sizeof SETS[0])) && (CONDITION);                       \
    }                                                                                                                  \
    static linnet_status conv_configure_##NAME(ln_call *call) {                                                        \
        return ln_gemm_conv_configure(call, SETS, (int)(sizeof SETS / sizeof SETS[0]));                                \
    }                                                                                                                  \
    const ln_kernel_code ln_matmul_##NAME = {.can = matmul_can_##NAME,                                                 \
                                             .cost = MATMUL_COST,                                                      \
                                             .configure = matmul_configure_##NAME,                                     \
                                             .pack = ln_gemm_pack,                                                     \
                                             .run = ln_gemm_run};                                                      \
    const ln_kernel_code ln_conv_##NAME = {.can = conv_can_##NAME,                                                     \
                                           .cost = CONV_COST,                                                          \
                                           .configure = conv_configure_##NAME,                                         \
                                           .pack = ln_gemm_pack,                                                       \
                                           .run = ln_gemm_run};

/* For kernels whose products take FASTER times the work of those in f32. */
#define LN_GEMM_KERNELS_FASTER(CONDITION, FASTER, NAME, SETS)                                                          \
    static void conv_cost_##NAME(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {                    \
        ln_gemm_conv_cost(kernel, call, counts);                                                                       \
        ln_scale_products(counts, FASTER);                                                                             \
    }                                                                                                                  \
    static void matmul_cost_##NAME(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {                  \
        ln_gemm_matmul_cost(kernel, call, counts);                                                                     \
        ln_scale_products(counts, FASTER);                                                                             \
    }                                                                                                                  \
    LN_GEMM_KERNELS_OF(CONDITION, matmul_cost_##NAME, conv_cost_##NAME, NAME, SETS)

/* Defines the code of the two kernels of a convolution's backward pass over the f32 set of an ISA:
 * ln_conv_gradient_NAME and ln_conv_transpose_scatter_NAME. */
#define LN_GEMM_BACKWARD(NAME, SET)                                                                                    \
    static linnet_status gradient_configure_##NAME(ln_call *call) { return ln_gemm_gradient_configure(call, SET); }    \
    static linnet_status scatter_configure_##NAME(ln_call *call) { return ln_gemm_scatter_configure(call, SET); }      \
    const ln_kernel_code ln_conv_gradient_##NAME = {                                                                   \
        .can = ln_gemm_gradient_can, .configure = gradient_configure_##NAME, .run = ln_gemm_gradient_run};             \
    const ln_kernel_code ln_conv_transpose_scatter_##NAME = {.can = ln_gemm_scatter_can,                               \
                                                             .cost = ln_gemm_scatter_cost,                             \
                                                             .configure = scatter_configure_##NAME,                    \
                                                             .run = ln_gemm_scatter_run};

#endif
