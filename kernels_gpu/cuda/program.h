/* program.h - programs of the CUDA backend. */
#ifndef LG_CUDA_PROGRAM_H
#define LG_CUDA_PROGRAM_H

#include "kernels_gpu/cuda/backend.h"

/* Stores the kernel function of a launch. The program is compiled once per device and stored in the cache (cache.h).
 * `host_cache` may be NULL. The device's context must be current. Returns 0 or a code. */
int lg_build(lg_device *device, const lg_launch *launch, const linnet_program_cache *host_cache, CUfunction *out);
/* Tells whether the pack has the programs of all launches of the plan. */
bool lg_has_programs(const lg_device *device, const lg_plan *plan);
/* Writes the text of the program to the file <hash>.cu of the folder that the option `texts` names. Does nothing
 * without this option. */
void lg_show(const lg_device *device, const lg_launch *launch);
/* Returns the dimension of a launch that becomes the x of the grid, because CUDA allows 2^31 blocks along x and only
 * 65535 along y and z: the dimension 1 or 2 with the most blocks if these are more than 65535, otherwise 0. */
int lg_largest_axis(const lg_launch *launch);

#endif
