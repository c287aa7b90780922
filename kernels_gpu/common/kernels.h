/* kernels.h - declares the functions `can` and `build` of the kernels that kernels.inc lists. The .c file of each
 * family defines them. lg_kernel in gpu.h says what they do. */
#ifndef LG_KERNELS_H
#define LG_KERNELS_H

#include "kernels_gpu/common/gpu.h"

#define LG_LINE(op, name, can, build, percent)                                                                         \
    bool can(const lg_step *s);                                                                                        \
    void build(const lg_step *s, lg_plan *plan);
#include "kernels_gpu/common/kernels.inc"
#ifdef LG_CUDA_KERNELS
#include "kernels_gpu/cuda/kernels.inc"
#endif
#undef LG_LINE

#endif
