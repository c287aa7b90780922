/* program.h - programs of the OpenCL backend. */
#ifndef LG_OPENCL_PROGRAM_H
#define LG_OPENCL_PROGRAM_H

#include "kernels_gpu/opencl/backend.h"

/* The built program of a launch, compiled once per device and kept in the cache. `host_cache` may be NULL.
 */
int lg_build(lg_device *device, const lg_launch *launch, const linnet_program_cache *host_cache, cl_program *out);

#endif
