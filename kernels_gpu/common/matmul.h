/* matmul.h - matrix products as kernels see them. */
#ifndef LG_MATMUL_H
#define LG_MATMUL_H

#include "kernels_gpu/common/gpu.h"

/* Matrix products y = a b: `matrices` products of an m x depth matrix and a depth x n matrix. The strides are in
 * elements: a_m from a row of a to the next, a_k along the sum, b_k and b_n likewise for b. */
typedef struct lg_matmul {
    int64_t m, n, depth, matrices;
    int64_t a_m, a_k, b_k, b_n;
    int a_outer, b_outer; /* number of axes in front of the matrices, which are broadcast */
} lg_matmul;

/* Reads the sizes by NumPy's rules for vectors, matrices and batches. Returns false if the kernels cannot compute the
 * step. */
bool lg_matmul_open(const lg_step *s, lg_matmul *out);

#endif
