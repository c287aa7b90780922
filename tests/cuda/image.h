/* image.h - what a compiled text of kernels exports to the stand-in for CUDA's driver: its kernels, and how a launch of
 * one runs on the CPU. */
#ifndef LG_CPU_IMAGE_H
#define LG_CPU_IMAGE_H

#include <stddef.h>

/* A launch. The caller has the memory that a block needs, because images come and go. */
typedef struct lg_cpu_launch {
    unsigned grid[3], block[3];
    void *shared; /* dynamic shared memory, which begins at a multiple of 1024 */
    size_t shared_bytes;
    char *stacks; /* of the threads of a block; each takes stack_bytes, of which the lowest are a guard page */
    size_t stack_bytes;
    unsigned order; /* of threads and of blocks: 0 ascending, 1 descending, else the seed of a shuffle */
    char *error;    /* of lg_cpu_error_bytes: what is wrong with the kernel */
} lg_cpu_launch;

enum { lg_cpu_error_bytes = 400, lg_cpu_most_threads = 1024, lg_cpu_most_parameters = 128 };

typedef struct lg_cpu_kernel {
    const char *name;
    int n_parameters;
    const unsigned *sizes;                                      /* of the parameters */
    int (*run)(const lg_cpu_launch *launch, void **parameters); /* 0, or 1 with a text in `error` */
} lg_cpu_kernel;

/* The symbol lg_cpu_image. */
typedef struct lg_cpu_image {
    const lg_cpu_kernel *kernels; /* one without a name ends them */
    size_t shared_bytes;          /* static shared memory of all kernels together */
    int fibers;                   /* whether threads of a block wait for each other */
} lg_cpu_image;

/* What precedes the shared library in the bytes that the stand-in for NVRTC returns. */
typedef struct lg_cpu_header {
    char magic[8];
    unsigned long long size, hash; /* of the library */
    unsigned compute;              /* 87: sm_87 */
    unsigned zero[9];
} lg_cpu_header;

#define LG_CPU_MAGIC "LNSTAND1"

#endif
