/* train_array.h - arrays in files: .npy, a member of an .npz, or idx. */
#ifndef LN_TOOLS_TRAIN_ARRAY_H
#define LN_TOOLS_TRAIN_ARRAY_H

#include "train.h"

/* Opens an array. `member` is the array's name in an .npz file; NULL for other files. If the file is not valid, returns
 * false and writes the reason to `problem`, which has `size` bytes. */
bool array_open(const char *path, const char *member, array_file *out, char *problem, size_t size);
/* Reads the a->row_bytes bytes of one row, and converts them to this machine's byte order. `row` must be less than
 * a->rows. Returns false with a problem text. */
bool array_read(const array_file *a, long long row, void *to, char *problem, size_t size);
void array_close(array_file *a);
/* Tells whether the first bytes of the file are those of an .npz file. */
bool array_is_npz(const char *path);

#endif
