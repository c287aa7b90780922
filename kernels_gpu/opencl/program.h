/* program.h - programs of the OpenCL backend. */
#ifndef LG_OPENCL_PROGRAM_H
#define LG_OPENCL_PROGRAM_H

#include "kernels_gpu/opencl/backend.h"

/* Stores the built program of a launch. The program is compiled once per device and stored in the cache (cache.h).
 * `host_cache` may be NULL. Returns 0 or a code. */
int lg_build(lg_device *device, const lg_launch *launch, const linnet_program_cache *host_cache, cl_program *out);

#endif
