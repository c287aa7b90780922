/* npy.h - arrays in NumPy's .npy files. */
#ifndef LN_TOOLS_NPY_H
#define LN_TOOLS_NPY_H

#include "linnet.h"

#include <stdbool.h>
#include <stdio.h>

/* An array of NumPy's format 1.0 (numpy.org, "NEP 1"), in C order and little-endian. bf16 is read and written as
 * u2. */
typedef struct npy_array {
    int dtype; /* linnet_dtype */
    int rank;
    long long shape[LINNET_MAX_RANK];
    void *data; /* from malloc; the caller frees it */
    size_t bytes;
} npy_array;

/* Reads dtype and shape, but not the data, and leaves the file position at the first element. On an error, this
 * function and the next ones return false and write a text to `problem`, which has `size` bytes. */
bool npy_header(FILE *file, npy_array *out, char *problem, size_t size);
/* Reads a whole file. */
bool npy_read(const char *path, npy_array *out, char *problem, size_t size);
/* Converts an array of f64, NumPy's usual float, to f32, if `wanted` is LINNET_F32 and f32 can represent every value.
 */
void npy_round(npy_array *array, int wanted);
/* Writes a file atomically: creates a temporary file beside `path` and renames it. */
bool npy_write(const char *path, const linnet_tensor_info *info, const void *data, char *problem, size_t size);

#endif
