/* pack.h - programs that were compiled before. */
#ifndef LG_CUDA_PACK_H
#define LG_CUDA_PACK_H

#include "kernels_gpu/cuda/backend.h"

/* Opens the pack in a file, or without a path that of the build, which may have none. False with a text in
 * `why`: it cannot be used. */
bool lg_programs_open(const char *path, lg_programs *out, char *why, size_t size);
/* The code of a text; NULL: the pack does not have it. */
const unsigned char *lg_programs_find(const lg_programs *pack, const uint64_t hash[2]);

#endif
