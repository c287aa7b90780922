/* kernels.h - the functions of the kernels that kernels.inc lists: each is defined in the file of its family. */
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
