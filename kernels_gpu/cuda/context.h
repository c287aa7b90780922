/* context.h - the context of a device, which is current for the thread while it calls the driver. */
#ifndef LG_CUDA_CONTEXT_H
#define LG_CUDA_CONTEXT_H

#include "kernels_gpu/cuda/backend.h"

/* Makes the device's context the thread's, until lg_leave. Functions of the driver need one. Returns a code. */
int lg_enter(lg_device *device);
void lg_leave(const lg_device *device);

#endif
