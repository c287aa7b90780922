/* memory.h - buffers, queues, events and transfers of the OpenCL backend. */
#ifndef LG_OPENCL_MEMORY_H
#define LG_OPENCL_MEMORY_H

#include "kernels_gpu/opencl/backend.h"

/* Fills the fields of the table for buffers, queues, events and transfers. */
void lg_memory_functions(linnet_device *table);

#endif
