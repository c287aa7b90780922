/* work.h - claims of the OpenCL backend. */
#ifndef LG_OPENCL_WORK_H
#define LG_OPENCL_WORK_H

#include "kernels_gpu/opencl/backend.h"

/* After work has ended: a failure if a claim of the queue has found an index that is out of range. */
int lg_check(lg_device *device, lg_queue *queue);
void lg_work_functions(linnet_device *table);

#endif
