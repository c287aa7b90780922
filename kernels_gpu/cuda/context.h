/* context.h - the context of a device, which is current for the thread while it calls the driver. */
#ifndef LG_CUDA_CONTEXT_H
#define LG_CUDA_CONTEXT_H

#include "kernels_gpu/cuda/backend.h"

/* Makes the device's context current for the calling thread until lg_leave is called. Most functions of the driver need
 * a current context. Returns 0 or a code; after a code, do not call lg_leave. */
int lg_enter(lg_device *device);
void lg_leave(const lg_device *device);

#endif
