/* program.h - programs of the CUDA backend. */
#ifndef LG_CUDA_PROGRAM_H
#define LG_CUDA_PROGRAM_H

#include "kernels_gpu/cuda/backend.h"

/* The function of a launch, whose program is compiled once per device and kept in the cache. `host_cache`
 * may be NULL. */
int lg_build(lg_device *device, const lg_launch *launch, const linnet_program_cache *host_cache, CUfunction *out);
/* Whether the pack has the programs of all launches. */
bool lg_has_programs(const lg_device *device, const lg_plan *plan);
/* Writes the program's text for tests and builds: FOLDER/<hash>.cu. */
void lg_show(const lg_device *device, const lg_launch *launch);
/* Which of the block's coordinates is the largest dimension of a launch: CUDA allows 2^31 blocks along x, and 65535
 * along y and z. */
int lg_largest_axis(const lg_launch *launch);

#endif
