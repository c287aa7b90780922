/* train_array.h - arrays in files: .npy, a member of an .npz, or idx. */
#ifndef LN_TOOLS_TRAIN_ARRAY_H
#define LN_TOOLS_TRAIN_ARRAY_H

#include "train.h"

/* Opens an array. `member` is its name in an .npz file, else NULL. */
bool array_open(const char *path, const char *member, array_file *out, char *problem, size_t size);
/* Reads the `row_bytes` bytes of one row and converts them to this machine's byte order. */
bool array_read(const array_file *a, long long row, void *to, char *problem, size_t size);
void array_close(array_file *a);
/* Tells whether the file begins as an .npz file does. */
bool array_is_npz(const char *path);

#endif
