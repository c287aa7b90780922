/* work.h - claims of the OpenCL backend. */
#ifndef LG_OPENCL_WORK_H
#define LG_OPENCL_WORK_H

#include "kernels_gpu/opencl/backend.h"

/* Call this when the work of the queue has ended. Returns a code if a claim has found an index that is out of range,
 * otherwise 0. */
int lg_check(lg_device *device, lg_queue *queue);
/* Fills the fields of the table for claims: claim, prepare, unprepare, run, elapsed. */
void lg_work_functions(linnet_device *table);

#endif
