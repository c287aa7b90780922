/* host_memory.h - memory of the host that the device reads or writes in place, and pinned memory for fast transfers. */
#ifndef LG_OPENCL_HOST_MEMORY_H
#define LG_OPENCL_HOST_MEMORY_H

#include "kernels_gpu/opencl/backend.h"

/* Fills the fields of the table for memory of the host. `memory` is the option of options.h. */
void lg_host_memory_functions(linnet_device *table, int memory);

#endif
