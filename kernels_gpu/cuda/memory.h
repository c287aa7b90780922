/* memory.h - buffers, queues, events and transfers of the CUDA backend. */
#ifndef LG_CUDA_MEMORY_H
#define LG_CUDA_MEMORY_H

#include "kernels_gpu/cuda/backend.h"

void lg_memory_functions(linnet_device *table, int memory);

#endif
