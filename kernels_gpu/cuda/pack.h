/* pack.h - finds programs in a pack, which has programs that .ci/cuda_programs.py has compiled before. */
#ifndef LG_CUDA_PACK_H
#define LG_CUDA_PACK_H

#include "kernels_gpu/cuda/backend.h"

/* Opens the pack in a file. If `path` is empty, opens the pack of this build; a build may have none, and *out
 * is then empty. If the pack cannot be used, returns false and writes the reason to `why`. */
bool lg_programs_open(const char *path, lg_programs *out, char *why, size_t size);
/* Returns the compiled code of the text with these hashes; NULL if the pack does not have it. */
const unsigned char *lg_programs_find(const lg_programs *pack, const uint64_t hash[2]);

#endif
