/* memory.h - buffers, queues, events and transfers of the CUDA backend. */
#ifndef LG_CUDA_MEMORY_H
#define LG_CUDA_MEMORY_H

#include "kernels_gpu/cuda/backend.h"

/* Fills the fields of the table for buffers, queues, events and transfers. `memory` is the option of options.h. */
void lg_memory_functions(linnet_device *table, int memory);

#endif
