/* matmul.h - matrix products as kernels see them. */
#ifndef LG_MATMUL_H
#define LG_MATMUL_H

#include "kernels_gpu/common/gpu.h"

/* A matrix product, or several: y = a b, where a step of a row of a is a_m elements, and so on. */
typedef struct lg_matmul {
    int64_t m, n, depth, matrices;
    int64_t a_m, a_k, b_k, b_n;
    int a_outer, b_outer; /* axes in front of the matrices */
} lg_matmul;

/* Reads the sizes by NumPy's rules for vectors, matrices and batches. */
bool lg_matmul_open(const lg_step *s, lg_matmul *out);

#endif
